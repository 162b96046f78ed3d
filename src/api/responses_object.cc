#include "api/responses_object.h"

#include <fmt/format.h>

#include "api/answer_text.h"
#include "api/error_table.h"

namespace hayate::api {
namespace {

using text::AnswerPart;

std::string_view PrefixOf(const AnswerBlock& block) {
  if (block.kind == AnswerPart::kReasoning) return "rs_";
  return block.kind == AnswerPart::kContent ? "msg_" : "fc_";
}

void WriteResponseUsage(JsonWriter& json, const Usage& usage, const ServedModel& model) {
  json.BeginObject();
  json.Field("input_tokens", usage.prompt_tokens);
  json.Key("input_tokens_details");
  json.BeginObject();
  json.Field("cached_tokens", model.report_cached_tokens ? usage.cached_tokens : 0);
  json.Field("cache_write_tokens", 0);
  json.EndObject();
  json.Field("output_tokens", usage.completion_tokens);
  json.Key("output_tokens_details");
  json.BeginObject();
  json.Field("reasoning_tokens", usage.reasoning_tokens);
  json.EndObject();
  json.Field("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.EndObject();
}

// The codes that clients of Responses know.
std::string_view CodeOf(const Status& error) {
  const int status = KindOf(error.code()).http_status;
  if (status == 429) return "rate_limit_exceeded";
  return status < 500 ? "invalid_prompt" : "server_error";
}

void WriteOutcome(JsonWriter& json, const ResponseProgress& progress) {
  json.Key("error");
  if (progress.error == nullptr) {
    json.Null();
  } else {
    json.BeginObject();
    json.Field("code", CodeOf(*progress.error));
    json.Field("message", progress.error->message());
    json.EndObject();
  }
  json.Key("incomplete_details");
  json.Raw(progress.status == "incomplete" ? R"({"reason":"max_output_tokens"})" : "null");
}

}  // namespace

std::string ItemId(const AnswerHead& head, size_t index, const AnswerBlock& block) {
  return fmt::format("{}{:016x}{:08x}", PrefixOf(block), head.call_seed, index & 0xFFFFFFFF);
}

void WriteContentPart(JsonWriter& json, const AnswerHead& head, const AnswerBlock& block,
                      PartState state) {
  const bool whole = state == PartState::kWhole;
  const std::string_view text = whole ? std::string_view(block.text) : std::string_view();
  json.BeginObject();
  if (block.kind == AnswerPart::kReasoning) {
    json.Field("type", "reasoning_text");
    json.Field("text", text);
  } else {
    json.Field("type", "output_text");
    json.Field("text", text);
    json.Key("annotations");
    json.Raw("[]");
    json.Key("logprobs");
    whole ? WriteScores(json, block.scores, *head.model) : json.Raw("[]");
  }
  json.EndObject();
}

void WriteOutputItem(JsonWriter& json, const AnswerHead& head, size_t index,
                     const AnswerBlock& block, std::string_view status) {
  const bool whole = status != "in_progress";
  json.BeginObject();
  json.Field("id", ItemId(head, index, block));
  if (block.kind == AnswerPart::kCallName) {
    json.Field("type", "function_call");
    json.Field("status", status);
    json.Field("call_id", CallId(head.call_seed, 0, block.call));
    json.Field("name", block.name);
    json.Field("arguments", whole ? std::string_view(block.text) : std::string_view());
    return json.EndObject();
  }
  const bool message = block.kind == AnswerPart::kContent;
  json.Field("type", message ? "message" : "reasoning");
  json.Field("status", status);
  if (message) {
    json.Field("role", "assistant");
  } else {
    json.Key("summary");
    json.Raw("[]");
  }
  json.Key("content");
  json.BeginArray();
  if (whole) WriteContentPart(json, head, block, PartState::kWhole);
  json.EndArray();
  json.EndObject();
}

std::string RenderResponse(const AnswerHead& head, const ResponseProgress& progress) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("id", head.id);
  json.Field("object", "response");
  json.Field("created_at", head.created);
  json.Field("status", progress.status);
  json.Field("background", head.spec->response->background);
  json.Key("completed_at");
  progress.status == "completed" ? json.Int(progress.completed_at) : json.Null();
  WriteOutcome(json, progress);
  json.Field("model", head.model->name);
  json.Key("output");
  json.BeginArray();
  if (progress.output != nullptr) {
    for (const std::string& item : *progress.output) json.Raw(item);
  }
  json.EndArray();
  json.Key("usage");
  progress.usage != nullptr ? WriteResponseUsage(json, *progress.usage, *head.model) : json.Null();
  json.EndObject();
  out.pop_back();
  return out + "," + head.spec->response->echo + "}";
}

}  // namespace hayate::api
