// Service: what operators ask of a running server.

#include <simdjson.h>

#include <charconv>

#include "api/field_reader.h"
#include "api/send_error.h"
#include "api/service.h"
#include "base/error.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "obs/step_trace.h"

namespace hayate::api {
namespace {

constexpr int64_t kMaxProfileSteps = 1'000'000;

// Operators' bodies may be left out.
Result<simdjson::dom::object> ParseOptionalBody(simdjson::dom::parser& parser,
                                                std::string_view body) {
  const bool blank = body.find_first_not_of(" \t\r\n") == std::string_view::npos;
  return ParseBody(parser, blank ? std::string_view("{}") : body);
}

std::string MessageBody(std::string_view message) {
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Field("success", true);
  json.Field("status", "ok");
  json.Field("message", message);
  json.EndObject();
  return body;
}

Result<engine::PauseMode> ReadPauseMode(std::string_view body) {
  simdjson::dom::parser parser;
  ASSIGN_OR_RETURN(const simdjson::dom::object object, ParseOptionalBody(parser, body));
  FieldReader fields(object);
  const std::string_view mode = fields.String("mode").value_or("abort");
  RETURN_IF_ERROR(fields.status());
  if (mode == "abort") return engine::PauseMode::kAbort;
  if (mode == "retract") return engine::PauseMode::kRetract;
  if (mode == "in_place") return engine::PauseMode::kInPlace;
  return InvalidField("mode", "'{}' is no mode; there are abort, retract and in_place",
                      Shown(mode));
}

}  // namespace

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
    // Others' requests: the operator's business.
    const auto caller = access_->Admit(request, Access::kAdmin);
    if (!caller.ok()) return SendError(writer, caller.status());
    client_.CancelAll();
  } else if (rid) {
    for (const RequestId id : live_.Find(std::string(*rid))) client_.Cancel(id);
  } else {
    return SendError(writer, InvalidField("rid", "name a request, or set abort_all"));
  }
  writer.Send({.status = 200}, "");
}

void Service::PauseGeneration(http::Request& request, http::ResponseWriter writer) {
  const auto mode = ReadPauseMode(request.body);
  if (!mode.ok()) return SendError(writer, mode.status());
  AnswerFromTextPool(request, std::move(writer), "application/json",
                     [this, mode = *mode]() -> Result<std::string> {
                       RETURN_IF_ERROR(client_.Pause(mode).get());
                       return MessageBody("Generation paused successfully.");
                     });
}

void Service::ContinueGeneration(http::Request& request, http::ResponseWriter writer) {
  AnswerFromTextPool(request, std::move(writer), "application/json",
                     [this]() -> Result<std::string> {
                       RETURN_IF_ERROR(client_.Continue().get());
                       return MessageBody("Generation continued successfully.");
                     });
}

// {"server_args": {…}}: the options that can change while the server runs.
void Service::SetInternalState(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  auto body = ParseBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status());
  FieldReader outer(*body);
  const auto args = outer.Object("server_args");
  if (!outer.status().ok()) return SendError(writer, outer.status());
  if (!args) return SendError(writer, InvalidField("server_args", "is missing"));
  FieldReader fields(*args, "server_args.");
  const auto max_queued = fields.Int("max_queued_requests", 1, options_.max_queued_requests);
  const auto level = fields.String("log_level");
  if (!fields.status().ok()) return SendError(writer, fields.status());
  if (const auto unknown = fields.Unread(); !unknown.empty()) {
    return SendError(writer,
                     InvalidField(Shown(unknown.front()),
                                  "cannot change while the server runs; these can: "
                                  "max_queued_requests (up to its value at the start), log_level"));
  }
  if (level) {
    const Status status = SetLogLevel(*level);
    if (!status.ok()) return SendError(writer, status);
  }
  if (max_queued) {
    max_queued_.store(static_cast<int32_t>(*max_queued), std::memory_order_relaxed);
  }
  std::string answer;
  JsonWriter json(answer);
  json.BeginObject();
  json.Field("updated", true);
  json.Key("server_args");
  json.BeginObject();
  json.Field("max_queued_requests", max_queued_.load(std::memory_order_relaxed));
  json.EndObject();
  json.EndObject();
  SendJson(writer, answer);
}

void Service::GetWeightsByName(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  auto body = ParseBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status());
  FieldReader fields(*body);
  const auto name = fields.String("name");
  const int64_t rows = fields.Int("truncate_size", 1, INT32_MAX).value_or(100);
  if (!fields.status().ok()) return SendError(writer, fields.status());
  if (!name) return SendError(writer, InvalidField("name", "is missing"));
  AnswerFromTextPool(request, std::move(writer), "application/json",
                     [this, name = std::string(*name), rows] { return read_weights_(name, rows); });
}

void Service::UpdateWeightsFromDisk(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  auto body = ParseBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status());
  FieldReader fields(*body);
  const auto path = fields.String("model_path");
  const std::string_view format = fields.String("load_format").value_or("auto");
  const auto version = fields.String("weight_version");
  WeightUpdateRequest update{.model_path = std::string(path.value_or("")),
                             .abort_all = fields.Bool("abort_all_requests").value_or(false),
                             .flush_cache = fields.Bool("flush_cache").value_or(true)};
  for (const char* other :
       {"is_async", "torch_empty_cache", "keep_pause", "recapture_cuda_graph", "token_step"}) {
    fields.Ignore(other);
  }
  if (update.model_path.empty()) fields.Fail("model_path", "is missing");
  if (format != "auto" && format != "safetensors" && format != "gguf") {
    fields.Fail("load_format", "must be auto, safetensors or gguf; the files say which they are");
  }
  if (!fields.status().ok()) return SendError(writer, fields.status());
  AnswerFromPool(request, std::move(writer),
                 {.pool = &*update_pool_,
                  .content_type = "application/json",
                  .work = [this, update = std::move(update),
                           version = version ? std::optional<std::string>(*version)
                                             : std::nullopt]() -> Result<std::string> {
                    RETURN_IF_ERROR(update_weights_(update));
                    model_.weights->SetPath(update.model_path);
                    if (version) model_.weights->SetVersion(*version);
                    return MessageBody("Succeeded to update model weights.");
                  },
                  .busy = "another update of the weights is under way"});
}

void Service::UpdateWeightVersion(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  auto body = ParseBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status());
  FieldReader fields(*body);
  const auto version = fields.String("new_version");
  const bool abort_all = fields.Bool("abort_all_requests").value_or(true);
  if (!version) fields.Fail("new_version", "is missing");
  if (!fields.status().ok()) return SendError(writer, fields.status());
  if (abort_all) client_.CancelAll();
  model_.weights->SetVersion(std::string(*version));
  SendJson(writer, MessageBody("The weights have a new version."));
}

void Service::OpenSession(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  auto body = ParseOptionalBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status());
  constexpr size_t kMaxSessionId = 256;
  FieldReader fields(*body);
  const std::string id(fields.String("session_id").value_or(""));
  if (id.size() > kMaxSessionId) fields.Fail("session_id", "has more than 256 bytes");
  const int64_t capacity = fields.Int("capacity_of_str_len", 0, INT64_MAX).value_or(0);
  fields.Ignore("streaming");
  fields.Ignore("timeout");
  if (!fields.status().ok()) return SendError(writer, fields.status());
  const auto opened = sessions_.Open(id, capacity);
  if (!opened.ok()) return SendError(writer, opened.status());
  std::string answer;
  JsonWriter(answer).String(*opened);
  SendJson(writer, answer);
}

void Service::CloseSession(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  auto body = ParseBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status());
  FieldReader fields(*body);
  const auto id = fields.String("session_id");
  if (!fields.status().ok()) return SendError(writer, fields.status());
  if (!id) return SendError(writer, InvalidField("session_id", "is missing"));
  const Status status = sessions_.Close(std::string(*id));
  if (!status.ok()) return SendError(writer, status);
  writer.Send({.status = 200}, "");
}

// The steps are recorded always: this only reads them.
void Service::Trace(http::Request& request, http::ResponseWriter writer) {
  constexpr size_t kDefaultSteps = 100;
  const auto text = http::QueryValue(request.query, "steps");
  size_t steps = kDefaultSteps;
  if (text) {
    const auto parsed = std::from_chars(text->data(), text->data() + text->size(), steps);
    if (parsed.ec != std::errc() || parsed.ptr != text->data() + text->size() || steps == 0) {
      return SendError(writer, InvalidField("steps", "must be a number of steps, from 1"));
    }
  }
  const auto records = step_log_.Snapshot(steps);
  const std::string taken = std::to_string(step_log_.num_steps());
  writer.AddField("X-Hayate-Steps", taken);
  SendJson(writer, obs::StepTraceJson(records));
}

void Service::StartProfile(http::Request& request, http::ResponseWriter writer) {
  simdjson::dom::parser parser;
  auto body = ParseOptionalBody(parser, request.body);
  if (!body.ok()) return SendError(writer, body.status());
  FieldReader fields(*body);
  std::string folder(fields.String("output_dir").value_or(""));
  const auto num_steps = fields.Int("num_steps", 1, kMaxProfileSteps);
  for (const char* other : {"activities", "profile_by_stage", "with_stack", "record_shapes",
                            "profile_id", "merge_profiles", "start_step"}) {
    fields.Ignore(other);
  }
  if (!fields.status().ok()) return SendError(writer, fields.status());
  const Status status = profile_.Start(std::move(folder), step_log_.num_steps(), num_steps);
  if (!status.ok()) return SendError(writer, status);
  writer.Send({.content_type = "text/plain"}, "Start profiling.\n");
}

void Service::StopProfile(http::Request& request, http::ResponseWriter writer) {
  AnswerFromTextPool(request, std::move(writer), "application/json",
                     [this]() -> Result<std::string> {
                       ASSIGN_OR_RETURN(const std::string path, profile_.Stop(step_log_));
                       return MessageBody("Stop profiling. The trace is " + path);
                     });
}

void Service::StartExpertRecord(http::Request&, http::ResponseWriter writer) {
  if (const Status status = expert_record_.start(); !status.ok()) return SendError(writer, status);
  writer.Send({.content_type = "text/plain"}, "Start recording the expert distribution.\n");
}

void Service::StopExpertRecord(http::Request&, http::ResponseWriter writer) {
  if (const Status status = expert_record_.stop(); !status.ok()) return SendError(writer, status);
  writer.Send({.content_type = "text/plain"}, "Stop recording the expert distribution.\n");
}

// The record itself is the answer: a file that --init-expert-location reads.
void Service::DumpExpertRecord(http::Request&, http::ResponseWriter writer) {
  const auto record = expert_record_.dump();
  if (!record.ok()) return SendError(writer, record.status());
  SendJson(writer, *record);
}

}  // namespace hayate::api
