#include "api/responses_parse.h"

#include <limits>
#include <memory>

#include "api/conversation.h"
#include "api/field_reader.h"
#include "api/grammar_fields.h"
#include "api/request_fields.h"
#include "api/responses_items.h"
#include "api/thinking_fields.h"
#include "api/tool_fields.h"
#include "base/error.h"
#include "base/json_writer.h"

namespace hayate::api {
namespace {

using simdjson::dom::element;

constexpr int64_t kMaxTokens = std::numeric_limits<int64_t>::max();

// Accepted without effect: they do not change what is generated here. max_tool_calls counts calls
// of tools that the server would run itself.
constexpr std::string_view kIgnored[] = {
    "user",           "service_tier",     "stream_options", "safety_identifier",
    "max_tool_calls", "prompt_cache_key", "include",        "prompt_cache_retention"};
constexpr std::string_view kRefused[] = {"conversation", "prompt", "context_management"};

// `include` may ask for scores, and top_logprobs says how many alternatives stand beside each.
void ReadLogprobs(FieldReader& fields, GenerationSpec& spec) {
  const auto top = fields.Int("top_logprobs", 0, LogprobParams::kMaxTop);
  spec.logprobs.num_top = static_cast<int32_t>(top.value_or(0));
  spec.logprobs.enabled = spec.logprobs.num_top > 0;
  constexpr size_t kMaxIncludes = 64;
  for (const std::string& name : fields.Strings("include", kMaxIncludes)) {
    if (name == "message.output_text.logprobs") spec.logprobs.enabled = true;
  }
}

Status ReadInput(FieldReader& fields, const FindConversation& find_conversation,
                 ConversationBuilder& conversation, GenerationSpec& spec) {
  auto items = std::make_shared<std::vector<std::string>>();
  const auto instructions = fields.String("instructions");
  const auto previous = fields.String("previous_response_id");
  const auto input = fields.Any("input");
  RETURN_IF_ERROR(fields.status());
  if (!input) return InvalidField("input", "is missing");
  if (instructions && !instructions->empty()) {
    conversation.AddText("developer", {std::string(*instructions)});
  }
  if (previous) {
    ASSIGN_OR_RETURN(const std::vector<std::string> earlier, find_conversation(*previous));
    std::string list = "[";
    for (const std::string& item : earlier) list += (list.size() > 1 ? "," : "") + item;
    list += "]";
    simdjson::dom::parser parser;
    element parsed;
    if (parser.parse(list).get(parsed) != simdjson::SUCCESS) {
      return InvalidField("previous_response_id", "its items cannot be read");
    }
    if (!earlier.empty()) {
      RETURN_IF_ERROR(ReadResponsesItems(parsed, "previous_response_id", conversation, *items));
    }
  }
  RETURN_IF_ERROR(ReadResponsesItems(*input, "input", conversation, *items));
  spec.response->input = std::move(items);
  return OkStatus();
}

// The request's settings as the response repeats them, defaults filled in.
std::string EchoOf(FieldReader& fields, const GenerationSpec& spec) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  const auto as_sent = [&](const char* name, std::string_view fallback) {
    const auto value = fields.Any(name);
    json.Key(name);
    json.Raw(value ? std::string(simdjson::minify(*value)) : std::string(fallback));
  };
  as_sent("instructions", "null");
  as_sent("max_output_tokens", "null");
  as_sent("max_tool_calls", "null");
  as_sent("metadata", "{}");
  json.Field("parallel_tool_calls", spec.tools.parallel);
  as_sent("previous_response_id", "null");
  as_sent("prompt_cache_key", "null");
  as_sent("reasoning", R"({"effort":null,"summary":null})");
  as_sent("safety_identifier", "null");
  json.Field("service_tier", "default");
  json.Field("store", spec.response->store);
  json.Key("temperature");
  json.Float(spec.sampling.temperature);
  as_sent("text", R"({"format":{"type":"text"}})");
  as_sent("tool_choice", spec.tools.tools.empty() ? R"("none")" : R"("auto")");
  as_sent("tools", "[]");
  json.Field("top_logprobs", spec.logprobs.num_top);
  json.Key("top_p");
  json.Float(spec.sampling.top_p);
  json.Field("truncation", "disabled");
  as_sent("user", "null");
  json.EndObject();
  return out.substr(1, out.size() - 2);
}

void ReadText(FieldReader& fields, GenerationSpec& spec) {
  const auto text = fields.Object("text");
  if (!text) return;
  FieldReader inner(*text, "text.");
  spec.grammar = ReadFormatField(inner, "format", "text.");
  inner.Ignore("verbosity");
  fields.Fail(inner.status());
}

}  // namespace

Result<GenerationSpec> ParseResponsesRequest(simdjson::dom::object body, const ServedModel& model,
                                             const FindConversation& find_conversation,
                                             std::vector<std::string>& unknown) {
  FieldReader fields(body);
  GenerationSpec spec;
  spec.dialect = Dialect::kResponses;
  spec.response.emplace();
  ReadRequestFields(fields, model, spec);
  if (spec.n != 1) fields.Fail("n", "a response has one answer");
  spec.max_new_tokens = fields.Int("max_output_tokens", 1, kMaxTokens);
  ReadLogprobs(fields, spec);
  ReadText(fields, spec);
  const bool background = fields.Bool("background").value_or(false);
  spec.response->background = background;
  spec.response->store = fields.Bool("store").value_or(true);
  if (background && !spec.response->store) {
    fields.Fail("background", "needs store: there is no other way to the answer");
  }
  if (const auto truncation = fields.String("truncation");
      truncation && *truncation != "disabled") {
    fields.Fail("truncation", "only 'disabled' is supported by this server");
  }
  (void)fields.Object("metadata");
  for (const std::string_view name : kRefused) {
    if (fields.Any(name)) fields.Fail(name, "is not supported by this server");
  }
  for (const std::string_view name : kIgnored) fields.Ignore(name);
  ASSIGN_OR_RETURN(spec.tools, ReadToolUse(fields, ToolShape::kResponses));
  const ThinkingFields thinking = ReadThinkingFields(fields, spec);
  RETURN_IF_ERROR(fields.status());
  ChooseAnswerFormat(model, spec);

  ConversationBuilder conversation(*model.chat_template);
  RETURN_IF_ERROR(ReadInput(fields, find_conversation, conversation, spec));
  text::ChatInput input;
  input.messages = conversation.ForTemplate();
  if (spec.tools.choice != ToolChoice::kNone) {
    ASSIGN_OR_RETURN(input.tools, TemplateTools(spec.tools));
  }
  ApplyThinking(thinking, model, input);
  spec.prompts.emplace_back(std::move(input));
  spec.response->echo = EchoOf(fields, spec);
  unknown = fields.Unread();
  return spec;
}

}  // namespace hayate::api
