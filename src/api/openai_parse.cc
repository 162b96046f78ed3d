#include "api/openai_parse.h"

#include <limits>

#include "api/field_reader.h"
#include "api/grammar_fields.h"
#include "api/request_fields.h"
#include "api/thinking_fields.h"
#include "api/tool_fields.h"
#include "base/error.h"

namespace hayate::api {
namespace {

using simdjson::dom::element;

constexpr int64_t kMaxTokens = std::numeric_limits<int64_t>::max();

// Accepted without effect: they do not change what is generated.
constexpr std::string_view kIgnored[] = {"user",  "metadata",          "service_tier",
                                         "store", "safety_identifier", "prompt_cache_key"};

void ReadCommonFields(FieldReader& fields, const ServedModel& model, GenerationSpec& spec) {
  ReadRequestFields(fields, model, spec);
  spec.include_usage = spec.stream && model.stream.include_usage;
  if (const auto options = fields.Object("stream_options")) {
    FieldReader inner(*options, "stream_options.");
    spec.include_usage = inner.Bool("include_usage").value_or(spec.include_usage);
    spec.continuous_usage = inner.Bool("continuous_usage_stats").value_or(false);
    fields.Fail(inner.status());
    if (!spec.stream) fields.Fail("stream_options", "needs stream to be true");
  }
  if (const auto top = fields.Int("prompt_logprobs", 0, LogprobParams::kMaxTop)) {
    spec.prompt_logprobs = static_cast<int32_t>(*top);
    if (spec.stream) fields.Fail("prompt_logprobs", "cannot be streamed");
  }
  spec.grammar = ReadGrammarFields(fields, "");
  for (const std::string_view name : kIgnored) fields.Ignore(name);
}

void RefuseUnsupported(FieldReader& fields, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    if (fields.Any(name)) fields.Fail(name, "is not supported by this server");
  }
}

// A text, a list of texts, a list of ids, or a list of lists of ids.
Status ReadCompletionPrompt(FieldReader& fields, const ServedModel& model, GenerationSpec& spec) {
  const auto prompt = fields.Any("prompt");
  if (!prompt) return InvalidField("prompt", "is missing");
  std::string_view text;
  if (prompt->get(text) == simdjson::SUCCESS) {
    spec.prompts.emplace_back(std::string(text));
    return OkStatus();
  }
  simdjson::dom::array array;
  if (prompt->get(array) != simdjson::SUCCESS || array.size() == 0) {
    return InvalidField("prompt", "must be a text, token ids, or a list of either, not empty");
  }
  if (array.at(0).is_number()) {
    ASSIGN_OR_RETURN(auto ids, ReadTokenIds(array, "prompt", model.vocab_size));
    spec.prompts.emplace_back(std::move(ids));
    return OkStatus();
  }
  for (const element item : array) {
    const std::string where = "prompt[" + std::to_string(spec.prompts.size()) + "]";
    if (spec.prompts.size() == GenerationSpec::kMaxPrompts) {
      return InvalidField("prompt", "holds more than {} prompts", GenerationSpec::kMaxPrompts);
    }
    simdjson::dom::array ids;
    if (item.get(text) == simdjson::SUCCESS) {
      spec.prompts.emplace_back(std::string(text));
    } else if (item.get(ids) == simdjson::SUCCESS) {
      ASSIGN_OR_RETURN(auto tokens, ReadTokenIds(ids, where, model.vocab_size));
      spec.prompts.emplace_back(std::move(tokens));
    } else {
      return InvalidField(where, "must be a text or a list of token ids");
    }
  }
  return OkStatus();
}

}  // namespace

Result<GenerationSpec> ParseChatRequest(simdjson::dom::object body, const ServedModel& model,
                                        std::vector<std::string>& unknown) {
  FieldReader fields(body);
  GenerationSpec spec;
  spec.dialect = Dialect::kChat;
  ReadCommonFields(fields, model, spec);
  auto limit = fields.Int("max_completion_tokens", 1, kMaxTokens);
  const auto old_limit = fields.Int("max_tokens", 1, kMaxTokens);
  spec.max_new_tokens = limit ? limit : old_limit;

  const auto top = fields.Int("top_logprobs", 0, LogprobParams::kMaxTop);
  spec.logprobs.enabled = fields.Bool("logprobs").value_or(false);
  spec.logprobs.num_top = static_cast<int32_t>(top.value_or(0));
  if (top.value_or(0) > 0 && !spec.logprobs.enabled) {
    fields.Fail("top_logprobs", "needs logprobs to be true");
  }
  ASSIGN_OR_RETURN(spec.tools, ReadToolUse(fields, ToolShape::kChat));
  RefuseUnsupported(fields, {"functions", "function_call", "audio"});
  const ThinkingFields thinking = ReadThinkingFields(fields, spec);
  RETURN_IF_ERROR(fields.status());
  ChooseAnswerFormat(model, spec);
  ASSIGN_OR_RETURN(auto conversation, ReadConversation(fields, model));
  if (spec.tools.choice == ToolChoice::kNone) conversation.tools = {};
  ApplyThinking(thinking, model, conversation);
  spec.prompts.emplace_back(std::move(conversation));
  unknown = fields.Unread();
  return spec;
}

Result<GenerationSpec> ParseCompletionRequest(simdjson::dom::object body, const ServedModel& model,
                                              std::vector<std::string>& unknown) {
  FieldReader fields(body);
  GenerationSpec spec;
  spec.dialect = Dialect::kCompletion;
  ReadCommonFields(fields, model, spec);
  constexpr int64_t kDefaultMaxTokens = 16;  // OpenAI's
  spec.echo = fields.Bool("echo").value_or(false);
  spec.max_new_tokens = fields.Int("max_tokens", 0, kMaxTokens).value_or(kDefaultMaxTokens);
  if (const auto logprobs = fields.Int("logprobs", 0, LogprobParams::kMaxTop)) {
    spec.logprobs.enabled = true;
    spec.logprobs.num_top = static_cast<int32_t>(*logprobs);
    if (spec.echo) spec.logprobs.prompt_start = 0;
  }
  const auto best_of =
      static_cast<int32_t>(fields.Int("best_of", 1, GenerationSpec::kMaxChoices).value_or(spec.n));
  if (best_of < spec.n) fields.Fail("best_of", "must not be less than n");
  if (best_of > spec.n) {
    if (spec.stream) fields.Fail("best_of", "cannot be streamed: the best is known at the end");
    spec.num_best = spec.n;
    spec.n = best_of;
  }
  if (const auto suffix = fields.String("suffix"); suffix && !suffix->empty()) {
    fields.Fail("suffix", "is not supported by this server");
  }
  RETURN_IF_ERROR(fields.status());
  RETURN_IF_ERROR(ReadCompletionPrompt(fields, model, spec));
  unknown = fields.Unread();
  return spec;
}

}  // namespace hayate::api
