#include "api/answer_text.h"

#include <iterator>
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

void GatheredChoice::Add(ChoiceDelta delta) {
  text += delta.text;
  for (text::AnswerEvent& event : delta.parts) {
    if (event.part == text::AnswerPart::kCallName) {
      parts.push_back(std::move(event));
    } else {
      text::AddEvent(parts, event.part, event.text, event.call);
    }
  }
  tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end());
  logprobs.insert(logprobs.end(), std::make_move_iterator(delta.logprobs.begin()),
                  std::make_move_iterator(delta.logprobs.end()));
  if (delta.end) end = *std::move(delta.end);
}

}  // namespace hayate::api
