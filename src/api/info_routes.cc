// Service: health, models, server facts, metrics.

#include <simdjson.h>

#include "api/error_table.h"
#include "api/field_reader.h"
#include "api/send_error.h"
#include "api/service.h"
#include "base/error.h"
#include "base/json_writer.h"

namespace hayate::api {

void Service::Health(http::Request&, http::ResponseWriter writer) {
  if (client_.failed()) {
    return SendError(writer, Status(ErrorCode::kUnavailable, "the device has failed"));
  }
  if (draining_.load(std::memory_order_relaxed)) {
    return SendError(writer, Status(ErrorCode::kUnavailable, "the server is shutting down"));
  }
  writer.Send({.status = 200}, "");
}

void Service::Models(http::Request& request, http::ResponseWriter writer) {
  constexpr std::string_view kPrefix = "/v1/models/";
  const bool one = request.path.starts_with(kPrefix);
  if (one) {
    const std::string name = http::PercentDecode(request.path.substr(kPrefix.size()));
    if (name.empty() || !KnowsModel(name)) {
      return SendError(
          writer, Error(ErrorCode::kNotFound, "the model '{}' is not served here; this is '{}'",
                        Shown(name), model_.name)
                      .WithParam("model"));
    }
  }
  std::string body;
  JsonWriter json(body);
  const auto write_model = [&] {
    json.BeginObject();
    json.Field("id", model_.name);
    json.Field("object", "model");
    json.Field("created", model_.created);
    json.Field("owned_by", "hayate");
    json.Field("root", model_.name);
    json.NullField("parent");
    json.Field("max_model_len", model_.max_context);
    json.EndObject();
  };
  if (one) {
    write_model();
  } else {
    json.BeginObject();
    json.Field("object", "list");
    json.Key("data");
    json.BeginArray();
    write_model();
    json.EndArray();
    json.EndObject();
  }
  SendJson(writer, body);
}

void Service::ModelInfo(http::Request&, http::ResponseWriter writer) {
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Field("model_path", model_.weights->path());
  json.Field("tokenizer_path", model_.path);
  json.Field("is_generation", true);
  json.Field("served_model_name", model_.name);
  json.Field("architecture", model_.architecture);
  json.Field("max_model_len", model_.max_context);
  json.Field("vocab_size", model_.vocab_size);
  json.Field("weight_version", model_.weights->version());
  json.EndObject();
  SendJson(writer, body);
}

void Service::ServerInfo(http::Request&, http::ResponseWriter writer) {
  const engine::EngineLoad load = client_.load();
  std::string body = "{" + model_.server_info_json;
  body += fmt::format(
      ",\"max_total_num_tokens\":{},\"internal_states\":[{{\"num_running_reqs\":{},"
      "\"num_waiting_reqs\":{},\"num_used_tokens\":{}}}]}}",
      load.total_tokens, load.num_running, load.num_waiting, load.used_tokens);
  SendJson(writer, body);
}

void Service::Metrics(http::Request&, http::ResponseWriter writer) {
  if (!options_.enable_metrics) {
    return SendError(writer, Status(ErrorCode::kNotFound,
                                    "metrics are off; start the server with --enable-metrics"));
  }
  writer.Send({.content_type = obs::Registry::kContentType}, registry_.RenderText());
}

}  // namespace hayate::api
