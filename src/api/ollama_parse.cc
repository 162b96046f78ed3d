#include "api/ollama_parse.h"

#include <limits>

#include "api/conversation.h"
#include "api/field_reader.h"
#include "api/request_fields.h"
#include "api/sampling_fields.h"
#include "api/thinking_fields.h"
#include "api/tool_fields.h"
#include "base/error.h"

namespace hayate::api {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;
using text::jinja::Value;

// How a runner of llama.cpp is set up: nothing of it says what is generated.
constexpr std::string_view kIgnoredOptions[] = {
    "num_ctx",   "num_batch", "num_gpu",    "main_gpu",      "num_thread",
    "num_keep",  "low_vram",  "f16_kv",     "vocab_only",    "use_mmap",
    "use_mlock", "numa",      "logits_all", "repeat_last_n", "penalize_newline",
    "typical_p", "tfs_z",     "mirostat",   "mirostat_eta",  "mirostat_tau"};

void ReadOptions(FieldReader& fields, const ServedModel& model, GenerationSpec& spec) {
  simdjson::dom::parser parser;
  const auto given = fields.Object("options");
  const object options = given ? *given : object(parser.parse(std::string_view("{}")));
  FieldReader inner(options, "options.");
  ReadSamplingFields(inner, model, spec);
  if (spec.n != 1) inner.Fail("n", "an answer has one choice");
  if (const auto penalty = inner.Number("repeat_penalty", 0.01, 2.0)) {
    spec.sampling.repetition_penalty = static_cast<float>(*penalty);
  }
  // −1 and −2: as many as fit.
  const auto most = inner.Int("num_predict", -2, std::numeric_limits<int32_t>::max());
  if (most && *most >= 0) spec.max_new_tokens = *most;
  using Seed = std::numeric_limits<int64_t>;
  spec.seed = inner.Int("seed", Seed::min(), Seed::max());
  for (const std::string_view name : kIgnoredOptions) inner.Ignore(name);
  fields.Fail(inner.status());
}

// "json", a schema, or nothing.
void ReadFormat(FieldReader& fields, GenerationSpec& spec) {
  const auto value = fields.Any("format");
  if (!value) return;
  std::string_view word;
  if (value->get(word) == simdjson::SUCCESS) {
    if (word.empty()) return;
    if (word != "json") return fields.Fail("format", "must be json or a schema");
    spec.grammar = grammar::GrammarSource{grammar::GrammarKind::kJsonObject, "", "format"};
    return;
  }
  if (!value->is_object()) return fields.Fail("format", "must be json or a schema");
  spec.grammar = grammar::GrammarSource{grammar::GrammarKind::kJsonSchema,
                                        std::string(simdjson::minify(*value)), "format"};
}

// A switch, or a level.
ThinkingFields ReadThink(FieldReader& fields) {
  ThinkingFields thinking;
  const auto value = fields.Any("think");
  if (!value) return thinking;
  bool enabled = false;
  std::string_view level;
  if (value->get(enabled) == simdjson::SUCCESS) {
    thinking.enabled = enabled;
  } else if (value->get(level) == simdjson::SUCCESS) {
    thinking.enabled = true;
    thinking.effort = std::string(level);
  } else {
    fields.Fail("think", "must be true, false or a level");
  }
  return thinking;
}

void ReadCommonFields(FieldReader& fields, const ServedModel& model, GenerationSpec& spec) {
  ReadOptions(fields, model, spec);
  spec.model = WithoutTag(fields.String("model").value_or(""));
  spec.stream = fields.Bool("stream").value_or(true);
  ReadFormat(fields, spec);
  fields.Ignore("keep_alive");
}

Status RefuseImages(FieldReader& fields, const std::string& where) {
  const auto images = fields.Array("images");
  if (!images || images->size() == 0) return OkStatus();
  return InvalidField(where + "images", "this model takes text only");
}

// {"function": {"name", "arguments": {…}}}
Result<std::vector<PastCall>> ReadCalls(FieldReader& fields, const std::string& where) {
  std::vector<PastCall> calls;
  const auto list = fields.Array("tool_calls");
  if (!list) return calls;
  for (const element item : *list) {
    const std::string at = where + "tool_calls[" + std::to_string(calls.size()) + "]";
    object function;
    std::string_view name;
    if (item["function"].get(function) != simdjson::SUCCESS ||
        function["name"].get(name) != simdjson::SUCCESS) {
      return InvalidField(at + ".function", "must be an object with a name");
    }
    element arguments;
    const bool has = function["arguments"].get(arguments) == simdjson::SUCCESS;
    calls.push_back({"", std::string(name), has ? std::string(simdjson::minify(arguments)) : "{}"});
  }
  return calls;
}

Result<Message> ReadMessage(const element& item, const std::string& where) {
  object fields_of;
  if (item.get(fields_of) != simdjson::SUCCESS) return InvalidField(where, "must be an object");
  const std::string prefix = where + ".";
  FieldReader fields(fields_of, prefix);
  Message message;
  message.role = fields.String("role").value_or("");
  if (const auto content = fields.String("content")) message.texts.emplace_back(*content);
  if (const auto thinking = fields.String("thinking"); thinking && !thinking->empty()) {
    message.fields.Set("reasoning_content", Value::String(std::string(*thinking)));
  }
  if (const auto tool = fields.String("tool_name")) {
    message.fields.Set("name", Value::String(std::string(*tool)));
  }
  ASSIGN_OR_RETURN(message.calls, ReadCalls(fields, prefix));
  RETURN_IF_ERROR(RefuseImages(fields, prefix));
  RETURN_IF_ERROR(fields.status());
  if (message.role.empty()) return InvalidField(prefix + "role", "is missing");
  return message;
}

}  // namespace

std::string_view WithoutTag(std::string_view model) {
  constexpr std::string_view kTag = ":latest";
  if (model.ends_with(kTag)) model.remove_suffix(kTag.size());
  return model;
}

Result<GenerationSpec> ParseOllamaChat(object body, const ServedModel& model,
                                       std::vector<std::string>& unknown) {
  FieldReader fields(body);
  GenerationSpec spec;
  spec.dialect = Dialect::kOllamaChat;
  ReadCommonFields(fields, model, spec);
  const ThinkingFields thinking = ReadThink(fields);
  const auto list = fields.Array("messages");
  RETURN_IF_ERROR(fields.status());
  ASSIGN_OR_RETURN(spec.tools, ReadToolUse(fields, ToolShape::kChat));
  ChooseAnswerFormat(model, spec);
  std::vector<Message> messages;
  if (list) {
    for (const element item : *list) {
      if (messages.size() == kMaxMessages) {
        return InvalidField("messages", "holds more than {} messages", kMaxMessages);
      }
      const std::string where = "messages[" + std::to_string(messages.size()) + "]";
      ASSIGN_OR_RETURN(Message message, ReadMessage(item, where));
      messages.push_back(std::move(message));
    }
  }
  if (messages.empty()) return InvalidField("messages", "must hold at least one message");
  text::ChatInput input;
  input.messages = TemplateMessages(messages, *model.chat_template);
  ASSIGN_OR_RETURN(input.tools, TemplateTools(spec.tools));
  ApplyThinking(thinking, model, input);
  spec.prompts.emplace_back(std::move(input));
  unknown = fields.Unread();
  return spec;
}

Result<GenerationSpec> ParseOllamaGenerate(object body, const ServedModel& model,
                                           std::vector<std::string>& unknown) {
  FieldReader fields(body);
  GenerationSpec spec;
  spec.dialect = Dialect::kOllamaGenerate;
  ReadCommonFields(fields, model, spec);
  const ThinkingFields thinking = ReadThink(fields);
  const auto prompt = fields.String("prompt");
  const auto system = fields.String("system");
  const bool raw = fields.Bool("raw").value_or(false);
  for (const char* name : {"suffix", "template"}) {
    if (const auto text = fields.String(name); text && !text->empty()) {
      fields.Fail(name, "is not supported here; see raw");
    }
  }
  fields.Ignore("context");
  RETURN_IF_ERROR(RefuseImages(fields, ""));
  RETURN_IF_ERROR(fields.status());
  if (!prompt) return InvalidField("prompt", "is missing");
  if (raw) {
    spec.prompts.emplace_back(std::string(*prompt));
  } else {
    std::vector<Message> messages;
    if (system && !system->empty()) {
      messages.push_back({.role = "system", .texts = {std::string(*system)}});
    }
    messages.push_back({.role = "user", .texts = {std::string(*prompt)}});
    text::ChatInput input;
    input.messages = TemplateMessages(messages, *model.chat_template);
    ChooseAnswerFormat(model, spec);
    ApplyThinking(thinking, model, input);
    spec.prompts.emplace_back(std::move(input));
  }
  unknown = fields.Unread();
  return spec;
}

}  // namespace hayate::api
