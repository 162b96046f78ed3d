// Service: health, models, server facts, metrics, cache and abort.

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
  json.Field("model_path", model_.path);
  json.Field("tokenizer_path", model_.path);
  json.Field("is_generation", true);
  json.Field("served_model_name", model_.name);
  json.Field("architecture", model_.architecture);
  json.Field("max_model_len", model_.max_context);
  json.Field("vocab_size", model_.vocab_size);
  json.Field("weight_version", "default");
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

void Service::FlushCache(http::Request& request, http::ResponseWriter writer) {
  // The engine answers within a step; the future is waited for off the http threads.
  AnswerFromTextPool(request, std::move(writer), "text/plain", [this]() -> Result<std::string> {
    RETURN_IF_ERROR(client_.FlushCache().get());
    return std::string("Cache flushed.\n");
  });
}

void Service::AbortRequest(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  auto body = ParseBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status());
  FieldReader fields(*body);
  const auto rid = fields.String("rid");
  const bool all = fields.Bool("abort_all").value_or(false);
  if (!fields.status().ok()) return SendError(writer, fields.status());
  if (all) {
    client_.CancelAll();
  } else if (rid) {
    for (const RequestId id : live_.Find(std::string(*rid))) client_.Cancel(id);
  } else {
    return SendError(writer, InvalidField("rid", "name a request, or set abort_all"));
  }
  writer.Send({.status = 200}, "");
}

}  // namespace hayate::api
