#include "api/openapi.h"

#include <algorithm>
#include <map>
#include <vector>

#include "api/error_table.h"
#include "api/openapi_schemas.h"
#include "base/check.h"
#include "base/json_writer.h"

namespace hayate::api {
namespace {

// What a route takes and gives.
struct RouteFacts {
  std::string_view path;  // behind a method: that method's alone
  std::string_view summary;
  std::string_view body = {};    // schema of the request, by name; empty: none is sent
  std::string_view answer = {};  // schema of a whole answer, by name; empty: any JSON
  std::string_view type = "application/json";  // of a whole answer; empty: it has no body
};

constexpr std::string_view kText = "text/plain";
constexpr std::string_view kNothing;

constexpr RouteFacts kFacts[] = {
    {"/v1/chat/completions", "Answer a conversation", "ChatRequest", "ChatAnswer"},
    {"/v1/completions", "Complete a text", "CompletionRequest", "CompletionAnswer"},
    {"/v1/responses", "Answer items, and keep the response", "ResponsesRequest", "Response"},
    {"/v1/responses/{id}", "A response that is kept", "", "Response"},
    {"DELETE /v1/responses/{id}", "Keep a response no longer", "", "Deleted"},
    {"/v1/responses/{id}/cancel", "Stop a response in the background", "", "Response"},
    {"/v1/responses/{id}/input_items", "What a response answers", "", "List"},
    {"/v1/messages", "Answer a conversation, Anthropic's way", "MessagesRequest", "Message"},
    {"/v1/messages/count_tokens", "The length of a prompt", "CountRequest", "TokenCount"},
    {"/generate", "Complete texts, SGLang's way", "GenerateRequest", "GenerateAnswer"},
    {"/v1/models", "The served model", "", "List"},
    {"/v1/models/{path}", "The served model", "", "Model"},
    {"/health", "Whether the server serves", "", "", kNothing},
    {"/health_generate", "Whether a token can be computed", "", "GenerateAnswer"},
    {"/model_info", "Facts of the model", "", "ModelInfo"},
    {"/get_model_info", "Facts of the model", "", "ModelInfo"},
    {"/server_info", "The options in force", "", "ServerInfo"},
    {"/get_server_info", "The options in force", "", "ServerInfo"},
    {"/metrics", "Counters and histograms, for Prometheus", "", "", kText},
    {"/v1/loads", "Requests, tokens and throughput, for load balancers", "", "Loads"},
    {"/get_loads", "Requests, tokens and throughput, for load balancers", "", "Loads"},
    {"/get_load", "The same in its older form", "", "OldLoads"},
    {"/v1/cache_events", "Which prompts' beginnings are cached, for routers", "", "CacheEvents"},
    {"/tokenize", "Text to token ids", "TokenizeRequest", "Tokens"},
    {"/v1/tokenize", "Text to token ids", "TokenizeRequest", "Tokens"},
    {"/detokenize", "Token ids to text", "DetokenizeRequest", "Detokenized"},
    {"/v1/detokenize", "Token ids to text", "DetokenizeRequest", "Detokenized"},
    {"/v1/embeddings", "Vectors of texts", "EmbeddingRequest", "List"},
    {"/v1/score", "Probabilities of tokens behind texts", "ScoreRequest", "Scores"},
    {"/v1/rerank", "Documents by how well they meet a query", "RerankRequest", "Ranking"},
    {"/parse_function_call", "The calls in a text", "CallsRequest", "Calls"},
    {"/separate_reasoning", "The thinking in a text", "ReasoningRequest", "Separated"},
    {"/api/chat", "Answer a conversation, Ollama's way", "OllamaChatRequest", "OllamaAnswer"},
    {"/api/generate", "Complete a text, Ollama's way", "OllamaGenerateRequest", "OllamaAnswer"},
    {"/api/tags", "The served model", "", "OllamaTags"},
    {"/api/show", "Facts of the model", "OllamaShowRequest", "OllamaModel"},
    {"/api/version", "The version that clients look for", "", "OllamaVersion"},
    {"/open_session", "Begin a session of /generate", "OpenSessionRequest", "SessionId"},
    {"/close_session", "End a session", "CloseSessionRequest", "", kNothing},
    {"/flush_cache", "Forget cached prefixes", "", "", kText},
    {"/abort_request", "End a request", "AbortRequest", "", kNothing},
    {"/pause_generation", "Compute nothing for a while", "PauseRequest", "Done"},
    {"/continue_generation", "Go on", "", "Done"},
    {"/set_internal_state", "Change options of the running server", "StateRequest", "State"},
    {"/get_weights_by_name", "The first rows of a tensor", "WeightsRequest", "Values"},
    {"/update_weights_from_disk", "Serve another checkpoint of the model", "UpdateRequest", "Done"},
    {"/update_weight_version", "Name the weights", "VersionRequest", "Done"},
    {"/trace", "The last steps, as a Chrome trace", "", "Trace"},
    {"/start_profile", "Record steps", "ProfileRequest", "", kText},
    {"/stop_profile", "Write what was recorded", "", "Done"},
    {"/start_expert_distribution_record", "Count how experts are chosen", "", "", kText},
    {"/stop_expert_distribution_record", "Count no longer", "", "", kText},
    {"/dump_expert_distribution_record", "The counts"},
    {"/openapi.json", "This document"},
};

// What may stand behind "?"; nothing of it has to.
struct QueryParameter {
  std::string_view path;
  std::string_view name;
  std::string_view schema;
};

constexpr std::string_view kCount = R"({"type":"integer","minimum":0})";
constexpr std::string_view kSections =
    R"re({"type":"string","pattern":"^(all|core|memory|queues|disagg))re"
    R"re((,(all|core|memory|queues|disagg))*$"})re";

constexpr QueryParameter kQuery[] = {
    {"/v1/loads", "include", kSections},
    {"/get_loads", "include", kSections},
    {"/trace", "steps", R"({"type":"integer","minimum":1})"},
    {"/v1/cache_events", "epoch", R"({"type":"string","pattern":"^[0-9a-f]{1,16}$"})"},
    {"/v1/cache_events", "after", kCount},
    {"/v1/cache_events", "limit", kCount},
    {"/v1/responses/{id}/input_items", "limit", R"({"type":"integer","minimum":1,"maximum":100})"},
    {"/v1/responses/{id}/input_items", "order", R"({"enum":["asc","desc"]})"},
    {"/v1/responses/{id}/input_items", "after", R"({"type":"string"})"},
};

// A body that may be left out: every field has a default.
bool IsOptional(std::string_view body) {
  return body == "PauseRequest" || body == "ProfileRequest" || body == "OpenSessionRequest";
}

// Those that may send events or lines instead of a whole answer.
std::string_view StreamType(std::string_view body) {
  if (body.starts_with("Ollama") && body != "OllamaShowRequest") return "application/x-ndjson";
  for (const std::string_view streams : {"ChatRequest", "CompletionRequest", "GenerateRequest",
                                         "ResponsesRequest", "MessagesRequest"}) {
    if (body == streams) return "text/event-stream";
  }
  return {};
}

const RouteFacts* FindFacts(std::string_view path) {
  const auto found = std::ranges::find(kFacts, path, &RouteFacts::path);
  return found == std::end(kFacts) ? nullptr : found;
}

const RouteFacts* FactsOf(const OpenApiRoute& route) {
  const RouteFacts* own = FindFacts(std::string(route.method) + " " + std::string(route.path));
  return own != nullptr ? own : FindFacts(route.path);
}

void WriteRef(JsonWriter& json, std::string_view schema) {
  json.BeginObject();
  if (!schema.empty()) json.Field("$ref", "#/components/schemas/" + std::string(schema));
  json.EndObject();
}

void WriteContent(JsonWriter& json, std::string_view type, std::string_view schema) {
  json.Key(type);
  json.BeginObject();
  json.Key("schema");
  WriteRef(json, schema);
  json.EndObject();
}

std::string_view ErrorSchema(ErrorShape shape) {
  switch (shape) {
    case ErrorShape::kOpenAi:
      return "Error";
    case ErrorShape::kAnthropic:
      return "AnthropicError";
    case ErrorShape::kOllama:
      return "OllamaError";
  }
  CHECK(false) << "no such shape";
  return {};
}

void WriteParameter(JsonWriter& json, std::string_view in, std::string_view name,
                    std::string_view schema) {
  json.BeginObject();
  json.Field("name", name);
  json.Field("in", in);
  json.Field("required", in == "path");
  json.Key("schema");
  json.Raw(schema);
  json.EndObject();
}

// "{id}" of the path, and what may follow it.
void WriteParameters(JsonWriter& json, std::string_view path) {
  json.Key("parameters");
  json.BeginArray();
  if (const size_t begin = path.find('{'); begin != std::string_view::npos) {
    WriteParameter(json, "path", path.substr(begin + 1, path.find('}') - begin - 1),
                   R"({"type":"string","minLength":1})");
  }
  for (const QueryParameter& parameter : kQuery) {
    if (parameter.path == path) WriteParameter(json, "query", parameter.name, parameter.schema);
  }
  json.EndArray();
}

void WriteBody(JsonWriter& json, std::string_view schema) {
  json.Key("requestBody");
  json.BeginObject();
  json.Field("required", !IsOptional(schema));
  json.Key("content");
  json.BeginObject();
  WriteContent(json, "application/json", schema);
  json.EndObject();
  json.EndObject();
}

void WriteAnswer(JsonWriter& json, const RouteFacts& facts) {
  const std::string_view stream = StreamType(facts.body);
  json.BeginObject();
  json.Field("description", stream.empty()
                                ? "the answer"
                                : "the answer; in parts where the request asks for a stream");
  json.Key("content");
  json.BeginObject();
  if (!facts.type.empty()) WriteContent(json, facts.type, facts.answer);
  if (!stream.empty()) WriteContent(json, stream, "");
  json.EndObject();
  json.EndObject();
}

void WriteOperation(JsonWriter& json, const OpenApiRoute& route, const RouteFacts& facts) {
  json.BeginObject();
  json.Field("summary", facts.summary);
  WriteParameters(json, route.path);
  if (!facts.body.empty() && route.method != "GET") WriteBody(json, facts.body);
  json.Key("responses");
  json.BeginObject();
  json.Key("200");
  WriteAnswer(json, facts);
  json.Key("default");
  json.BeginObject();
  json.Field("description", "an error");
  json.Key("content");
  json.BeginObject();
  WriteContent(json, "application/json", ErrorSchema(ErrorShapeOf(route.path)));
  json.EndObject();
  json.EndObject();
  json.EndObject();
  json.Key("security");
  json.Raw(route.needs_key ? R"([{"key":[]}])" : "[]");
  json.EndObject();
}

}  // namespace

std::string OpenApiDocument(std::span<const OpenApiRoute> routes) {
  std::map<std::string_view, std::vector<const OpenApiRoute*>> by_path;
  for (const OpenApiRoute& route : routes) by_path[route.path].push_back(&route);
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("openapi", "3.1.0");
  json.Key("info");
  json.Raw(R"({"title":"Hayate","version":"1"})");
  json.Key("paths");
  json.BeginObject();
  for (const auto& [path, operations] : by_path) {
    json.Key(path);
    json.BeginObject();
    for (const OpenApiRoute* route : operations) {
      std::string method(route->method);
      for (char& c : method) c = static_cast<char>(c | 0x20);
      json.Key(method);
      const RouteFacts* facts = FactsOf(*route);
      CHECK(facts != nullptr) << "route " << path << " is not described";
      WriteOperation(json, *route, *facts);
    }
    json.EndObject();
  }
  json.EndObject();
  json.Key("components");
  json.BeginObject();
  json.Key("schemas");
  std::string schemas(OpenApiSchemas());
  std::erase(schemas, '\n');
  json.Raw(schemas);
  json.Key("securitySchemes");
  json.Raw(R"({"key":{"type":"http","scheme":"bearer"}})");
  json.EndObject();
  json.EndObject();
  return out;
}

}  // namespace hayate::api
