// Service: Ollama's routes, over the same conversations and answers as the others.

#include <simdjson.h>

#include "api/field_reader.h"
#include "api/formatter.h"
#include "api/ollama_parse.h"
#include "api/send_error.h"
#include "api/service.h"
#include "base/error.h"
#include "base/json_writer.h"

namespace hayate::api {
namespace {

// Whose API clients find here.
constexpr std::string_view kOllamaVersion = "0.12.0";

void WriteDetails(JsonWriter& json, const ServedModel& model) {
  json.Key("details");
  json.BeginObject();
  json.Field("parent_model", "");
  json.Field("format", model.path.ends_with(".gguf") ? "gguf" : "safetensors");
  json.Field("family", model.architecture);
  json.Key("families");
  json.BeginArray();
  json.String(model.architecture);
  json.EndArray();
  json.Field("parameter_size", "");
  json.Field("quantization_level", "");
  json.EndObject();
}

enum class OllamaRoute : uint8_t { kChat, kGenerate };

// An empty question loads the model or lets it go; here it is always there. Such a body is short.
bool OnlyLoads(std::string_view text, const char* field) {
  constexpr size_t kMaxBytes = 1024;
  simdjson::dom::parser parser;
  if (text.size() > kMaxBytes) return false;
  const auto body = ParseBody(parser, text);
  if (!body.ok()) return false;
  simdjson::dom::element value;
  if ((*body)[field].get(value) != simdjson::SUCCESS || value.is_null()) return true;
  std::string_view asked;
  simdjson::dom::array list;
  if (value.get(asked) == simdjson::SUCCESS) return asked.empty();
  return value.get(list) == simdjson::SUCCESS && list.size() == 0;
}

void SendLoaded(http::ResponseWriter& writer, const ServedModel& model, OllamaRoute route) {
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Field("model", model.name);
  json.Field("created_at", OllamaTimeNow());
  if (route == OllamaRoute::kChat) {
    json.Key("message");
    json.Raw(R"({"role":"assistant","content":""})");
  } else {
    json.Field("response", "");
  }
  json.Field("done", true);
  json.Field("done_reason", "load");
  json.EndObject();
  SendJson(writer, body);
}

}  // namespace

void Service::OllamaChat(http::Request& request, http::ResponseWriter writer) {
  if (OnlyLoads(request.body, "messages")) {
    return SendLoaded(writer, model_, OllamaRoute::kChat);
  }
  StartFromBody(request, std::move(writer), [this](const auto& body, auto& unknown) {
    return ParseOllamaChat(body, model_, unknown);
  });
}

void Service::OllamaGenerate(http::Request& request, http::ResponseWriter writer) {
  if (OnlyLoads(request.body, "prompt")) {
    return SendLoaded(writer, model_, OllamaRoute::kGenerate);
  }
  StartFromBody(request, std::move(writer), [this](const auto& body, auto& unknown) {
    return ParseOllamaGenerate(body, model_, unknown);
  });
}

void Service::OllamaTags(http::Request&, http::ResponseWriter writer) {
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Key("models");
  json.BeginArray();
  json.BeginObject();
  json.Field("name", model_.name);
  json.Field("model", model_.name);
  json.Field("modified_at", "1970-01-01T00:00:00Z");
  json.Field("size", 0);
  json.Field("digest", "");
  WriteDetails(json, model_);
  json.EndObject();
  json.EndArray();
  json.EndObject();
  SendJson(writer, body);
}

void Service::OllamaShow(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  auto body = ParseBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status(), ErrorShape::kOllama);
  FieldReader fields(*body);
  const auto name = fields.String("name");
  const auto asked = WithoutTag(fields.String("model").value_or(name.value_or("")));
  if (!fields.status().ok()) return SendError(writer, fields.status(), ErrorShape::kOllama);
  if (!KnowsModel(asked)) {
    return SendError(writer,
                     Error(ErrorCode::kNotFound, "model '{}' not found; this is '{}'", Shown(asked),
                           model_.name),
                     ErrorShape::kOllama);
  }
  std::string answer;
  JsonWriter json(answer);
  json.BeginObject();
  json.Field("modelfile", "FROM " + model_.path);
  json.Field("parameters", "");
  json.Field("template", model_.chat_template->source());
  WriteDetails(json, model_);
  json.Key("model_info");
  json.BeginObject();
  json.Field("general.architecture", model_.architecture);
  json.Field(model_.architecture + ".context_length", model_.max_context);
  json.Field(model_.architecture + ".vocab_size", model_.vocab_size);
  json.EndObject();
  json.Key("capabilities");
  json.BeginArray();
  json.String("completion");
  if (model_.tools != nullptr) json.String("tools");
  if (model_.reasoning != nullptr) json.String("thinking");
  json.EndArray();
  json.EndObject();
  SendJson(writer, answer);
}

void Service::OllamaVersion(http::Request&, http::ResponseWriter writer) {
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Field("version", kOllamaVersion);
  json.EndObject();
  SendJson(writer, body);
}

}  // namespace hayate::api
