#include "api/openapi.h"

#include <algorithm>
#include <map>
#include <vector>

#include "api/error_table.h"
#include "base/json_writer.h"

namespace hayate::api {
namespace {

// What the routes of one path take and give.
struct PathFacts {
  std::string_view path;
  std::string_view summary;
  std::string_view body;    // schema of the request, by name; empty: none is sent
  std::string_view answer;  // schema of a whole answer, by name; empty: any JSON
};

constexpr PathFacts kFacts[] = {
    {"/v1/chat/completions", "Answer a conversation", "ChatRequest", "ChatAnswer"},
    {"/v1/completions", "Complete a text", "CompletionRequest", "CompletionAnswer"},
    {"/v1/responses", "Answer items, and keep the response", "ResponsesRequest", "Response"},
    {"/v1/responses/{id}", "A response that is kept", "", ""},
    {"/v1/responses/{id}/cancel", "Stop a response in the background", "", "Response"},
    {"/v1/responses/{id}/input_items", "What a response answers", "", "List"},
    {"/v1/messages", "Answer a conversation, Anthropic's way", "MessagesRequest", "Message"},
    {"/v1/messages/count_tokens", "The length of a prompt", "CountRequest", "TokenCount"},
    {"/generate", "Complete texts, SGLang's way", "GenerateRequest", ""},
    {"/v1/models", "The served model", "", "List"},
    {"/v1/models/{path}", "The served model", "", ""},
    {"/tokenize", "Text to token ids", "TokenizeRequest", ""},
    {"/v1/tokenize", "Text to token ids", "TokenizeRequest", ""},
    {"/detokenize", "Token ids to text", "DetokenizeRequest", ""},
    {"/v1/detokenize", "Token ids to text", "DetokenizeRequest", ""},
};

// The component schemas. Sampling holds what every generating body may have; further fields are
// ignored, so no schema closes its objects.
constexpr std::string_view kSchemas = R"json({
"Error":{"type":"object","required":["error"],"properties":{"error":{"type":"object",
  "required":["message","type","param","code"],"properties":{"message":{"type":"string"},
  "type":{"type":"string"},"param":{"type":["string","null"]},"code":{"type":"string"}}}}},
"AnthropicError":{"type":"object","required":["type","error"],"properties":{
  "type":{"const":"error"},"error":{"type":"object","required":["type","message"],
  "properties":{"type":{"type":"string"},"message":{"type":"string"}}}}},
"Sampling":{"type":"object","properties":{
  "model":{"type":["string","null"]},
  "temperature":{"type":["number","null"],"minimum":0,"maximum":100},
  "top_p":{"type":["number","null"],"minimum":0,"maximum":1},
  "top_k":{"type":["integer","null"],"minimum":-1,"maximum":2147483647},
  "min_p":{"type":["number","null"],"minimum":0,"maximum":1},
  "frequency_penalty":{"type":["number","null"],"minimum":-2,"maximum":2},
  "presence_penalty":{"type":["number","null"],"minimum":-2,"maximum":2},
  "repetition_penalty":{"type":["number","null"],"minimum":0.01,"maximum":2},
  "seed":{"type":["integer","null"]},
  "stop":{"oneOf":[{"type":["string","null"]},
    {"type":"array","items":{"type":"string"},"maxItems":256}]},
  "min_tokens":{"type":["integer","null"],"minimum":0},
  "ignore_eos":{"type":["boolean","null"]},
  "stream":{"type":["boolean","null"]},
  "stream_interval":{"type":["integer","null"],"minimum":1,"maximum":2147483647},
  "priority":{"type":["integer","null"],"minimum":-1000000,"maximum":1000000},
  "cache_salt":{"type":["string","null"]}}},
"Texts":{"oneOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"object",
  "required":["type","text"],"properties":{"type":{"const":"text"},"text":{"type":"string"}}}}]},
"ChatRequest":{"allOf":[{"$ref":"#/components/schemas/Sampling"}],"type":"object",
  "required":["messages"],"properties":{
  "messages":{"type":"array","minItems":1,"items":{"type":"object","required":["role","content"],
    "properties":{"role":{"enum":["system","user","assistant"]},
    "content":{"$ref":"#/components/schemas/Texts"}}}},
  "max_tokens":{"type":["integer","null"],"minimum":1},
  "max_completion_tokens":{"type":["integer","null"],"minimum":1},
  "n":{"type":["integer","null"],"minimum":1,"maximum":128},
  "logprobs":{"type":["boolean","null"]},
  "top_logprobs":{"type":["integer","null"],"minimum":0,"maximum":20},
  "prompt_logprobs":{"type":["integer","null"],"minimum":0,"maximum":20},
  "tools":{"type":["array","null"],"items":{"type":"object","required":["function"]}},
  "parallel_tool_calls":{"type":["boolean","null"]},
  "response_format":{"type":["object","null"]}}},
"CompletionRequest":{"allOf":[{"$ref":"#/components/schemas/Sampling"}],"type":"object",
  "required":["prompt"],"properties":{
  "prompt":{"oneOf":[{"type":"string"},{"type":"array","minItems":1}]},
  "max_tokens":{"type":["integer","null"],"minimum":0},
  "n":{"type":["integer","null"],"minimum":1,"maximum":128},
  "best_of":{"type":["integer","null"],"minimum":1,"maximum":128},
  "logprobs":{"type":["integer","null"],"minimum":0,"maximum":20},
  "echo":{"type":["boolean","null"]}}},
"GenerateRequest":{"type":"object","properties":{
  "text":{"oneOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]},
  "input_ids":{"type":"array"},
  "sampling_params":{"oneOf":[{"type":"object"},{"type":"array","items":{"type":"object"}}]},
  "return_logprob":{"type":["boolean","null"]},
  "stream":{"type":["boolean","null"]}}},
"ResponsesRequest":{"allOf":[{"$ref":"#/components/schemas/Sampling"}],"type":"object",
  "required":["input"],"properties":{
  "input":{"oneOf":[{"type":"string"},{"type":"array","minItems":1,"items":{"type":"object"}}]},
  "instructions":{"type":["string","null"]},
  "max_output_tokens":{"type":["integer","null"],"minimum":1},
  "previous_response_id":{"type":["string","null"]},
  "store":{"type":["boolean","null"]},
  "background":{"type":["boolean","null"]},
  "metadata":{"type":["object","null"]},
  "text":{"type":["object","null"]},
  "reasoning":{"type":["object","null"]},
  "top_logprobs":{"type":["integer","null"],"minimum":0,"maximum":20}}},
"MessagesRequest":{"allOf":[{"$ref":"#/components/schemas/CountRequest"}],
  "required":["max_tokens"],"properties":{
  "max_tokens":{"type":"integer","minimum":1},
  "stop_sequences":{"type":["array","null"],"items":{"type":"string"},"maxItems":256}}},
"CountRequest":{"allOf":[{"$ref":"#/components/schemas/Sampling"}],"type":"object",
  "required":["messages"],"properties":{
  "messages":{"type":"array","minItems":1,"items":{"type":"object","required":["role","content"],
    "properties":{"role":{"enum":["user","assistant"]},
    "content":{"$ref":"#/components/schemas/Texts"}}}},
  "system":{"$ref":"#/components/schemas/Texts"},
  "thinking":{"type":["object","null"]},
  "tools":{"type":["array","null"],"items":{"type":"object","required":["name"]}}}},
"TokenizeRequest":{"type":"object","properties":{
  "prompt":{"oneOf":[{"type":"string"},{"type":"array","items":{"type":"string"}}]},
  "messages":{"type":"array"},
  "add_special_tokens":{"type":["boolean","null"]}}},
"DetokenizeRequest":{"type":"object","required":["tokens"],"properties":{
  "tokens":{"type":"array"},
  "skip_special_tokens":{"type":["boolean","null"]}}},
"ChatAnswer":{"type":"object","required":["id","object","created","model","choices","usage"],
  "properties":{"object":{"const":"chat.completion"},"choices":{"type":"array","minItems":1}}},
"CompletionAnswer":{"type":"object","required":["id","object","created","model","choices","usage"],
  "properties":{"object":{"const":"text_completion"},"choices":{"type":"array","minItems":1}}},
"Response":{"type":"object","required":["id","object","created_at","status","output"],
  "properties":{"object":{"const":"response"},"output":{"type":"array"},
  "status":{"enum":["queued","in_progress","completed","incomplete","cancelled","failed"]}}},
"Message":{"type":"object","required":["id","type","role","content","stop_reason","usage"],
  "properties":{"type":{"const":"message"},"role":{"const":"assistant"},
  "content":{"type":"array"}}},
"TokenCount":{"type":"object","required":["input_tokens"],
  "properties":{"input_tokens":{"type":"integer","minimum":1}}},
"List":{"type":"object","required":["object","data"],
  "properties":{"object":{"const":"list"},"data":{"type":"array"}}}
})json";

const PathFacts* FactsOf(std::string_view path) {
  const auto found = std::find_if(std::begin(kFacts), std::end(kFacts),
                                  [&](const PathFacts& facts) { return facts.path == path; });
  return found == std::end(kFacts) ? nullptr : found;
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

// "{id}" of the path, as parameters.
void WriteParameters(JsonWriter& json, std::string_view path) {
  const size_t begin = path.find('{');
  if (begin == std::string_view::npos) return;
  json.Key("parameters");
  json.BeginArray();
  json.BeginObject();
  json.Field("name", path.substr(begin + 1, path.find('}') - begin - 1));
  json.Field("in", "path");
  json.Field("required", true);
  json.Key("schema");
  json.Raw(R"({"type":"string","minLength":1})");
  json.EndObject();
  json.EndArray();
}

void WriteOperation(JsonWriter& json, const OpenApiRoute& route, const PathFacts* facts) {
  const bool sends = facts != nullptr && !facts->body.empty() && route.method != "GET";
  json.BeginObject();
  if (facts != nullptr) json.Field("summary", facts->summary);
  WriteParameters(json, route.path);
  if (sends) {
    json.Key("requestBody");
    json.BeginObject();
    json.Field("required", true);
    json.Key("content");
    json.BeginObject();
    WriteContent(json, "application/json", facts->body);
    json.EndObject();
    json.EndObject();
  }
  json.Key("responses");
  json.BeginObject();
  json.Key("200");
  json.BeginObject();
  json.Field("description", "the answer; events where the request asks for a stream");
  if (facts != nullptr) {
    json.Key("content");
    json.BeginObject();
    WriteContent(json, "application/json", facts->answer);
    if (sends) WriteContent(json, "text/event-stream", "");
    json.EndObject();
  }
  json.EndObject();
  json.Key("default");
  json.BeginObject();
  json.Field("description", "an error");
  json.Key("content");
  json.BeginObject();
  const bool anthropic = ErrorShapeOf(route.path) == ErrorShape::kAnthropic;
  WriteContent(json, "application/json", anthropic ? "AnthropicError" : "Error");
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
      WriteOperation(json, *route, FactsOf(path));
    }
    json.EndObject();
  }
  json.EndObject();
  json.Key("components");
  json.BeginObject();
  json.Key("schemas");
  std::string schemas(kSchemas);
  std::erase(schemas, '\n');
  json.Raw(schemas);
  json.Key("securitySchemes");
  json.Raw(R"({"key":{"type":"http","scheme":"bearer"}})");
  json.EndObject();
  json.EndObject();
  return out;
}

}  // namespace hayate::api
