#include "api/answer_grammar.h"

#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/json_writer.h"

namespace hayate::api {
namespace {

using grammar::GrammarKind;
using grammar::GrammarSource;

// Models write arguments on one line.
constexpr int kMaxCallBlanks = 2;

// Structural-tag formats as JSON text.
std::string Object(std::string_view type,
                   std::initializer_list<std::pair<std::string_view, std::string>> fields) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("type", type);
  for (const auto& [key, value] : fields) {
    json.Key(key);
    json.Raw(value);
  }
  json.EndObject();
  return out;
}

std::string Quoted(std::string_view text) {
  std::string out;
  AppendJsonString(out, text);
  return out;
}

std::string List(const std::vector<std::string>& items) {
  std::string out = "[";
  for (const std::string& item : items) out += (out.size() > 1 ? "," : "") + item;
  return out + "]";
}

std::string Sequence(const std::vector<std::string>& formats) {
  return formats.size() == 1 ? formats[0] : Object("sequence", {{"elements", List(formats)}});
}

std::string Tag(std::string_view begin, const std::string& content, std::string_view end) {
  return Object("tag", {{"begin", Quoted(begin)}, {"content", content}, {"end", Quoted(end)}});
}

std::string SchemaFormat(const std::string& schema, std::string_view style, int max_blanks) {
  return Object("json_schema", {{"json_schema", schema},
                                {"style", Quoted(style)},
                                {"max_whitespace_cnt", std::to_string(max_blanks)}});
}

// A field's own grammar as a part of a larger one.
std::string FormatOf(const GrammarSource& source) {
  switch (source.kind) {
    case GrammarKind::kJsonObject:
      return SchemaFormat(R"({"type":"object","additionalProperties":true})", "json",
                          grammar::kMaxJsonWhitespace);
    case GrammarKind::kJsonSchema:
      return SchemaFormat(source.text, "json", grammar::kMaxJsonWhitespace);
    case GrammarKind::kRegex:
      return Object("regex", {{"pattern", Quoted(source.text)}});
    case GrammarKind::kEbnf:
      return Object("grammar", {{"grammar", Quoted(source.text)}});
    case GrammarKind::kStructuralTag:
      break;
  }
  CHECK(false) << "no format of its own";
  return {};
}

std::string CallTag(const text::ToolDialect& dialect, const Tool& tool, bool enforced) {
  const bool free = tool.parameters.empty() || !enforced;
  const std::string schema = free ? R"({"type":"object"})" : tool.parameters;
  return Tag(std::string(dialect.call_open) + tool.name + std::string(dialect.call_mid),
             SchemaFormat(schema, dialect.schema_style, kMaxCallBlanks), dialect.call_close);
}

// One call or more, and nothing else.
std::string DemandedCalls(const text::ToolDialect& dialect, const ToolUse& use) {
  std::vector<std::string> tags;
  for (const Tool& tool : use.tools) {
    if (use.choice == ToolChoice::kNamed && tool.name != use.named) continue;
    tags.push_back(CallTag(dialect, tool, true));
  }
  const bool one = !use.parallel || use.choice == ToolChoice::kNamed;
  const std::string calls =
      Object("tags_with_separator", {{"tags", List(tags)},
                                     {"separator", Quoted(dialect.separator)},
                                     {"at_least_one", "true"},
                                     {"stop_after_first", one ? "true" : "false"}});
  if (dialect.section_open.empty()) return calls;
  return Tag(dialect.section_open, calls, dialect.section_close);
}

// Free text in which a call, once begun, is a right one. Empty where no text announces a call.
std::string StrictCalls(const text::ToolDialect& dialect, const ToolUse& use) {
  const std::string_view trigger = dialect.openers[0];
  if (trigger.empty()) return {};
  std::vector<std::string> tags;
  for (const Tool& tool : use.tools) tags.push_back(CallTag(dialect, tool, tool.strict));
  if (!dialect.section_open.empty()) {
    const size_t skipped = dialect.section_open.find(trigger);
    const std::string calls =
        Object("tags_with_separator", {{"tags", List(tags)},
                                       {"separator", Quoted(dialect.separator)},
                                       {"at_least_one", "true"},
                                       {"stop_after_first", use.parallel ? "false" : "true"}});
    tags = {Tag(dialect.section_open.substr(skipped), calls, dialect.section_close)};
  }
  return Object("triggered_tags", {{"triggers", List({Quoted(trigger)})},
                                   {"tags", List(tags)},
                                   {"stop_after_first", use.parallel ? "false" : "true"}});
}

bool AnyStrict(const ToolUse& use) {
  for (const Tool& tool : use.tools) {
    if (tool.strict) return true;
  }
  return false;
}

struct Content {
  std::string format;  // empty: free text
  std::string field;   // that asked for it
  bool calls = false;  // calls alone
};

Content ContentOf(const GenerationSpec& spec) {
  const ToolUse& use = spec.tools;
  const text::ToolDialect* dialect = spec.format.tools;
  if (use.active() && use.demanded() && dialect != nullptr) {
    return {DemandedCalls(*dialect, use), "tool_choice", true};
  }
  const bool may_call = use.active() && dialect != nullptr && !dialect->call_mid.empty();
  if (spec.grammar) {
    std::string format = FormatOf(*spec.grammar);
    // The model may answer by the schema, or call tools first.
    if (may_call)
      format = Object("or", {{"elements", List({format, DemandedCalls(*dialect, use)})}});
    return {std::move(format), spec.grammar->field};
  }
  if (may_call && AnyStrict(use)) return {StrictCalls(*dialect, use), "tools"};
  return {};
}

std::string FreeText(std::optional<int64_t> budget) {
  if (!budget) return Object("any_text", {});
  return Object("any_text", {{"max_tokens", std::to_string(*budget)}});
}

// Thinking first: open already, or at the model's choice.
std::string Thinking(const text::ReasoningDialect& dialect, std::optional<int64_t> budget,
                     text::ThinkingPlace place) {
  if (dialect.harmony) {
    return Object("optional", {{"content", Tag("<|channel|>analysis<|message|>", FreeText(budget),
                                               "<|end|><|start|>assistant")}});
  }
  if (place == text::ThinkingPlace::kInside) return Tag("", FreeText(budget), dialect.end);
  return Object("optional", {{"content", Tag(dialect.begin, FreeText(budget), dialect.end)}});
}

}  // namespace

std::optional<GrammarSource> AnswerGrammar(const GenerationSpec& spec,
                                           text::ThinkingPlace thinking) {
  // A structural tag speaks of the whole answer.
  if (spec.grammar && spec.grammar->kind == GrammarKind::kStructuralTag) return spec.grammar;
  const Content content = ContentOf(spec);
  const text::ReasoningDialect* reasoning = spec.format.reasoning;
  const bool thinks = reasoning != nullptr && thinking != text::ThinkingPlace::kNone;
  if (content.format.empty() && !(thinks && spec.thinking_budget)) return std::nullopt;
  const bool harmony = reasoning != nullptr && reasoning->harmony;
  if (!thinks && !harmony && spec.grammar && !spec.tools.active()) return spec.grammar;

  std::vector<std::string> parts;
  if (thinks) parts.push_back(Thinking(*reasoning, spec.thinking_budget, thinking));
  if (content.format.empty()) {
    parts.push_back(FreeText(std::nullopt));
  } else {
    if (thinks && !harmony) parts.push_back(Object("regex", {{"pattern", R"("\\n{0,2}")"}}));
    if (harmony && !content.calls) {
      parts.push_back(Object("const_string", {{"value", Quoted("<|channel|>final<|message|>")}}));
    }
    parts.push_back(content.format);
  }
  return GrammarSource{GrammarKind::kStructuralTag,
                       Object("structural_tag", {{"format", Sequence(parts)}}),
                       content.field.empty() ? "thinking_budget" : content.field};
}

}  // namespace hayate::api
