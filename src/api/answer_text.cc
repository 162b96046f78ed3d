#include "api/answer_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/detokenizer.h"

namespace hayate::api {

std::string_view FinishName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kAbort:
      return "abort";
  }
  CHECK(false) << "unknown FinishReason";
  return {};
}

void WriteMatchedStop(JsonWriter& json, const ChoiceEnd& end) {
  if (const auto* id = std::get_if<TokenId>(&end.matched_stop)) return json.Int(*id);
  if (const auto* text = std::get_if<std::string>(&end.matched_stop)) return json.String(*text);
  json.Null();
}

void WriteUsage(JsonWriter& json, const Usage& usage, const ServedModel& model) {
  json.BeginObject();
  json.Field("prompt_tokens", usage.prompt_tokens);
  json.Field("completion_tokens", usage.completion_tokens);
  json.Field("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.Field("reasoning_tokens", usage.reasoning_tokens);
  json.Key("completion_tokens_details");
  json.BeginObject();
  json.Field("reasoning_tokens", usage.reasoning_tokens);
  json.EndObject();
  if (model.report_cached_tokens) {
    json.Key("prompt_tokens_details");
    json.BeginObject();
    json.Field("cached_tokens", usage.cached_tokens);
    json.EndObject();
  } else {
    json.NullField("prompt_tokens_details");
  }
  json.EndObject();
}

void EndEvent(JsonWriter& json, const AnswerHead& head, const Usage* usage) {
  if (usage != nullptr) {
    json.Key("usage");
    WriteUsage(json, *usage, *head.model);
  } else if (head.spec->include_usage) {
    json.NullField("usage");
  }
  json.EndObject();
}

std::string TokenText(const ServedModel& model, TokenId token) {
  std::string text;
  text::Utf8Repairer repairer;
  repairer.Push(model.tokenizer->TokenBytes(token), text);
  repairer.Flush(text);
  return text;
}

std::string CallId(uint64_t call_seed, size_t choice, int32_t call) {
  return fmt::format("call_{:016x}{:04x}{:04x}", call_seed, choice & 0xFFFF, call & 0xFFFF);
}

void WriteScores(JsonWriter& json, const std::vector<TokenLogprob>& scores,
                 const ServedModel& model) {
  const auto write_token = [&](TokenId token, float logprob) {
    json.Field("token", TokenText(model, token));
    json.Key("logprob");
    json.Float(logprob);
    json.Key("bytes");
    json.BeginArray();
    for (const char byte : model.tokenizer->TokenBytes(token)) {
      json.Int(static_cast<unsigned char>(byte));
    }
    json.EndArray();
  };
  json.BeginArray();
  for (const TokenLogprob& entry : scores) {
    json.BeginObject();
    write_token(entry.token, entry.logprob);
    json.Key("top_logprobs");
    json.BeginArray();
    for (const auto& [token, logprob] : entry.top) {
      json.BeginObject();
      write_token(token, logprob);
      json.EndObject();
    }
    json.EndArray();
    json.EndObject();
  }
  json.EndArray();
}

void WritePromptLogprobs(JsonWriter& json, const GenerationSpec& spec, const ServedModel& model,
                         Choice& choice) {
  if (!spec.prompt_logprobs) return;
  json.Key("prompt_logprobs");
  json.BeginArray();
  json.Null();
  for (const TokenLogprob& entry : choice.prompt_logprobs()) {
    json.BeginObject();
    const auto write = [&](TokenId token, float logprob, int32_t rank) {
      json.Key(std::to_string(token));
      json.BeginObject();
      json.Key("logprob");
      json.Float(logprob);
      json.Field("rank", rank + 1);
      json.Field("decoded_token", TokenText(model, token));
      json.EndObject();
    };
    write(entry.token, entry.logprob, entry.rank);
    const auto num_top = std::min(entry.top.size(), static_cast<size_t>(*spec.prompt_logprobs));
    for (size_t i = 0; i < num_top; ++i) {
      const auto& [token, logprob] = entry.top[i];
      if (token != entry.token) write(token, logprob, static_cast<int32_t>(i));
    }
    json.EndObject();
  }
  json.EndArray();
}

}  // namespace hayate::api
