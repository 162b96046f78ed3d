#include "bench/stream_dialect.h"

#include <simdjson.h>

#include <utility>

#include "base/error.h"
#include "base/json_writer.h"

namespace hayate::bench {
namespace {

using simdjson::dom::element;

constexpr std::pair<std::string_view, StreamDialect> kBackends[] = {
    {"openai", StreamDialect::kCompletions},   {"sglang-oai", StreamDialect::kCompletions},
    {"vllm", StreamDialect::kCompletions},     {"openai-chat", StreamDialect::kChat},
    {"sglang-oai-chat", StreamDialect::kChat}, {"vllm-chat", StreamDialect::kChat},
    {"sglang", StreamDialect::kGenerate},      {"sglang-native", StreamDialect::kGenerate},
};

void WritePrompt(JsonWriter& json, const PlannedRequest& request) {
  if (request.prompt_ids.empty()) return json.String(request.prompt_text);
  json.BeginArray();
  for (const int32_t id : request.prompt_ids) json.Int(id);
  json.EndArray();
}

void WriteOpenAi(JsonWriter& json, const DialectOptions& options, const PlannedRequest& request) {
  json.Field("model", options.model);
  if (options.dialect == StreamDialect::kChat) {
    json.Key("messages");
    json.BeginArray();
    json.BeginObject();
    json.Field("role", "user");
    json.Field("content", request.prompt_text);
    json.EndObject();
    json.EndArray();
    json.Field("max_completion_tokens", request.output_tokens);
  } else {
    json.Key("prompt");
    WritePrompt(json, request);
    json.Field("max_tokens", request.output_tokens);
  }
  json.Field("temperature", options.temperature);
  json.Field("ignore_eos", options.ignore_eos);
  json.Field("stream", true);
  json.Key("stream_options");
  json.BeginObject();
  json.Field("include_usage", true);
  json.EndObject();
}

void WriteGenerate(JsonWriter& json, const DialectOptions& options, const PlannedRequest& request) {
  json.Key(request.prompt_ids.empty() ? "text" : "input_ids");
  WritePrompt(json, request);
  json.Key("sampling_params");
  json.BeginObject();
  json.Field("temperature", options.temperature);
  json.Field("max_new_tokens", request.output_tokens);
  json.Field("ignore_eos", options.ignore_eos);
  json.EndObject();
  json.Field("stream", true);
}

std::optional<int32_t> Count(const element& object, std::string_view name) {
  int64_t value = 0;
  if (object[name].get(value) != simdjson::SUCCESS || value < 0 || value > INT32_MAX) return {};
  return static_cast<int32_t>(value);
}

bool IsText(const element& object, std::string_view name) {
  std::string_view text;
  return object[name].get(text) == simdjson::SUCCESS && !text.empty();
}

bool IsPresent(const element& object, std::string_view name) {
  element value;
  return object[name].get(value) == simdjson::SUCCESS && !value.is_null();
}

void ReadOpenAi(const element& root, StreamEvent& event) {
  element choice;
  if (root["choices"].at(0).get(choice) == simdjson::SUCCESS) {
    element delta;
    if (choice["delta"].get(delta) == simdjson::SUCCESS) {
      event.has_text = IsText(delta, "content") || IsText(delta, "reasoning_content");
    } else {
      event.has_text = IsText(choice, "text");
    }
    event.finished = IsPresent(choice, "finish_reason");
  }
  element usage;
  if (root["usage"].get(usage) != simdjson::SUCCESS || !usage.is_object()) return;
  event.prompt_tokens = Count(usage, "prompt_tokens");
  event.completion_tokens = Count(usage, "completion_tokens");
  element details;
  if (usage["prompt_tokens_details"].get(details) == simdjson::SUCCESS && details.is_object()) {
    event.cached_tokens = Count(details, "cached_tokens");
  }
}

void ReadGenerate(const element& root, StreamEvent& event) {
  event.has_text = IsText(root, "text");
  element meta;
  if (root["meta_info"].get(meta) != simdjson::SUCCESS || !meta.is_object()) return;
  event.prompt_tokens = Count(meta, "prompt_tokens");
  event.completion_tokens = Count(meta, "completion_tokens");
  event.cached_tokens = Count(meta, "cached_tokens");
  event.finished = IsPresent(meta, "finish_reason");
}

}  // namespace

Result<StreamDialect> ParseBackend(std::string_view backend) {
  for (const auto& [name, dialect] : kBackends) {
    if (name == backend) return dialect;
  }
  return InvalidField("backend", "'{}' is unknown; use {}", backend,
                      fmt::join(BackendNames(), ", "));
}

std::vector<std::string> BackendNames() {
  std::vector<std::string> names;
  for (const auto& [name, dialect] : kBackends) names.emplace_back(name);
  return names;
}

Status CheckExtraBody(std::string_view text) {
  simdjson::dom::parser parser;
  element root;
  if (parser.parse(text.data(), text.size()).get(root) == simdjson::SUCCESS && root.is_object()) {
    return OkStatus();
  }
  return InvalidField("extra-request-body", "must be a JSON object");
}

http::ClientRequest MakeStreamRequest(const DialectOptions& options,
                                      const PlannedRequest& request) {
  http::ClientRequest result;
  result.method = "POST";
  result.headers = {{"Content-Type", "application/json"}, {"Accept", "text/event-stream"}};
  if (!options.api_key.empty()) {
    result.headers.emplace_back("Authorization", "Bearer " + options.api_key);
  }
  JsonWriter json(result.body);
  json.BeginObject();
  switch (options.dialect) {
    case StreamDialect::kCompletions:
      result.target = options.base_path + "/v1/completions";
      WriteOpenAi(json, options, request);
      break;
    case StreamDialect::kChat:
      result.target = options.base_path + "/v1/chat/completions";
      WriteOpenAi(json, options, request);
      break;
    case StreamDialect::kGenerate:
      result.target = options.base_path + "/generate";
      WriteGenerate(json, options, request);
      break;
  }
  // The members between the object's braces.
  const size_t open = options.extra_body.find('{');
  const size_t close = options.extra_body.rfind('}');
  if (open != std::string::npos && close != std::string::npos) {
    const std::string members = options.extra_body.substr(open + 1, close - open - 1);
    if (members.find_first_not_of(" \t\r\n") != std::string::npos) result.body += "," + members;
  }
  json.EndObject();
  return result;
}

struct StreamEventReader::Impl {
  simdjson::dom::parser parser;
};

StreamEventReader::StreamEventReader(StreamDialect dialect)
    : dialect_(dialect), impl_(std::make_unique<Impl>()) {}
StreamEventReader::~StreamEventReader() = default;

Result<StreamEvent> StreamEventReader::Read(std::string_view data) {
  StreamEvent event;
  if (data == "[DONE]") {
    event.finished = true;
    return event;
  }
  element root;
  if (impl_->parser.parse(data.data(), data.size()).get(root) != simdjson::SUCCESS ||
      !root.is_object()) {
    return Error(ErrorCode::kDataLoss, "an event is not a JSON object: {}", data.substr(0, 100));
  }
  if (element error; root["error"].get(error) == simdjson::SUCCESS && !error.is_null()) {
    std::string_view message;
    if (error["message"].get(message) != simdjson::SUCCESS &&
        error.get(message) != simdjson::SUCCESS) {
      message = "an error without a message";
    }
    event.error = message.empty() ? "an error with an empty message" : message;
    return event;
  }
  if (dialect_ == StreamDialect::kGenerate) {
    ReadGenerate(root, event);
  } else {
    ReadOpenAi(root, event);
  }
  return event;
}

}  // namespace hayate::bench
