#include "gateway/own_routes.h"

#include <charconv>
#include <optional>

#include "base/error.h"
#include "base/json_writer.h"
#include "base/log.h"
#include "gateway/error_reply.h"

namespace hayate::gateway {
namespace {

void SendJson(http::ResponseWriter& writer, int status, std::string_view body) {
  writer.Send({.status = status, .content_type = "application/json"}, body);
}

void SendText(http::ResponseWriter& writer, int status, std::string_view body) {
  writer.Send({.status = status, .content_type = "text/plain"}, body);
}

void SendError(http::ResponseWriter& writer, int status, std::string_view code,
               std::string message) {
  SendErrorReply(writer, {.status = status, .code = code, .message = std::move(message)}, {});
}

void WriteWorker(JsonWriter& json, const Router::WorkerView& worker) {
  json.BeginObject();
  json.Field("id", std::to_string(worker.id.value));
  json.Field("url", NameOf(*worker.spec));
  if (worker.spec->dp_rank >= 0) json.Field("dp_rank", worker.spec->dp_rank);
  json.Field("model_id", !worker.spec->model.empty()   ? worker.spec->model
                         : worker.facts.models.empty() ? std::string("unknown")
                                                       : worker.facts.models.front());
  json.Field("worker_type", RoleName(worker.role));
  json.Field("is_healthy", worker.state == WorkerState::kReady);
  json.Field("state", StateName(worker.state));
  json.Field("load", worker.requests);
  json.Field("tokens", worker.tokens);
  json.Field("connection_mode", "http");
  json.Field("runtime_type", "sglang");
  json.Field("source", worker.spec->source);
  if (worker.spec->bootstrap_port > 0) json.Field("bootstrap_port", worker.spec->bootstrap_port);
  json.Field("requests_total", worker.total);
  json.Field("faults_total", worker.faults);
  json.EndObject();
}

void Readiness(State& state, http::ResponseWriter& writer) {
  size_t healthy = 0;
  size_t total = 0;
  bool ready = false;
  {
    std::lock_guard lock(state.mutex);
    ready = state.router.Ready();
    for (const auto& worker : state.router.Workers()) {
      healthy += worker.state == WorkerState::kReady ? 1 : 0;
      ++total;
    }
  }
  const bool draining = state.draining;
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Field("status", ready && !draining ? "ready" : "not ready");
  if (draining) json.Field("reason", "draining");
  if (!draining && !ready) json.Field("reason", "no healthy workers");
  json.Field("healthy_workers", uint64_t{healthy});
  json.Field("total_workers", uint64_t{total});
  json.EndObject();
  SendJson(writer, ready && !draining ? 200 : 503, body);
}

void ListModels(State& state, const http::Request& request, http::ResponseWriter& writer) {
  std::vector<std::string> models;
  {
    std::lock_guard lock(state.mutex);
    models = state.router.Models();
  }
  const auto write = [](JsonWriter& json, const std::string& name) {
    json.BeginObject();
    json.Field("id", name);
    json.Field("object", "model");
    json.Field("created", 0);
    json.Field("owned_by", "sglang");
    json.EndObject();
  };
  constexpr std::string_view kOne = "/v1/models/";
  std::string body;
  JsonWriter json(body);
  if (request.path.starts_with(kOne)) {
    const std::string wanted = http::PercentDecode(request.path.substr(kOne.size()));
    for (const std::string& name : models) {
      if (name != wanted) continue;
      write(json, name);
      return SendJson(writer, 200, body);
    }
    return SendError(writer, 404, "model_not_found", "no worker serves that model");
  }
  json.BeginObject();
  json.Field("object", "list");
  json.Key("data");
  json.BeginArray();
  for (const std::string& name : models) write(json, name);
  json.EndArray();
  json.EndObject();
  SendJson(writer, 200, body);
}

std::vector<Router::WorkerView> Fleet(State& state) {
  std::lock_guard lock(state.mutex);
  return state.router.Workers();
}

void ListWorkers(State& state, http::ResponseWriter& writer) {
  int counts[3] = {};
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Key("workers");
  json.BeginArray();
  const auto fleet = Fleet(state);
  for (const auto& worker : fleet) {
    WriteWorker(json, worker);
    ++counts[static_cast<size_t>(worker.role)];
  }
  json.EndArray();
  json.Field("total", uint64_t{fleet.size()});
  json.Key("stats");
  json.BeginObject();
  json.Field("prefill_count", counts[static_cast<size_t>(WorkerRole::kPrefill)]);
  json.Field("decode_count", counts[static_cast<size_t>(WorkerRole::kDecode)]);
  json.Field("regular_count", counts[static_cast<size_t>(WorkerRole::kRegular)]);
  json.EndObject();
  json.EndObject();
  SendJson(writer, 200, body);
}

void ListLoads(State& state, http::ResponseWriter& writer) {
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Key("workers");
  json.BeginArray();
  for (const auto& worker : Fleet(state)) {
    json.BeginObject();
    json.Field("worker", NameOf(*worker.spec));
    json.Field("load", worker.reported.at_ns == 0
                           ? worker.requests
                           : worker.reported.running + worker.reported.waiting);
    json.Field("waiting", worker.reported.waiting);
    json.Field("token_usage", worker.reported.token_usage);
    json.Field("in_flight", worker.requests);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  SendJson(writer, 200, body);
}

void RenderMetrics(State& state, http::ResponseWriter& writer) {
  std::string text = state.registry.RenderText();
  std::vector<Router::WorkerView> fleet;
  FleetTotals totals;
  {
    std::lock_guard lock(state.mutex);
    fleet = state.router.Workers();
    totals = {.num_queued = state.admission.num_queued(),
              .num_waiting = state.waiting_room.size(),
              .policy_bytes = state.router.policy_bytes()};
  }
  text += RenderFleet(fleet, totals);
  writer.Send({.content_type = obs::Registry::kContentType}, text);
}

std::optional<Router::WorkerView> FindWorker(State& state, std::string_view name) {
  const std::string decoded = http::PercentDecode(name);
  uint32_t number = 0;
  const auto [end, error] =
      std::from_chars(decoded.data(), decoded.data() + decoded.size(), number);
  std::lock_guard lock(state.mutex);
  if (error == std::errc() && end == decoded.data() + decoded.size()) {
    return state.router.Find(WorkerId{number});
  }
  return state.router.FindUrl(decoded);
}

void AddWorker(State& state, const std::function<void()>& nudge, Result<WorkerSpec> spec,
               http::ResponseWriter& writer) {
  if (!spec.ok()) return SendError(writer, 400, "BAD_REQUEST", spec.status().message());
  Result<WorkerId> id = Status(ErrorCode::kInternal, "");
  {
    std::lock_guard lock(state.mutex);
    id = state.router.Add(*spec);
  }
  if (!id.ok()) return SendError(writer, 400, "BAD_REQUEST", id.status().message());
  LOG_INFO("worker {} added by request", spec->url);
  nudge();
  const std::string number = std::to_string(id->value);
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Field("status", "accepted");
  json.Field("worker_id", number);
  json.Field("url", spec->url);
  json.EndObject();
  const std::string place = "/workers/" + number;
  const http::Header location{"Location", place};
  writer.Send({.status = 202, .content_type = "application/json", .headers = {&location, 1}}, body);
}

void DrainWorker(State& state, const std::function<void()>& nudge,
                 const std::optional<Router::WorkerView>& worker, http::ResponseWriter& writer) {
  if (!worker) return SendError(writer, 404, "WORKER_NOT_FOUND", "no such worker");
  {
    std::lock_guard lock(state.mutex);
    state.router.Drain(worker->id);
  }
  LOG_INFO("worker {} is draining, by request", worker->spec->url);
  nudge();
  SendJson(writer, 202, R"({"status":"accepted"})");
}

void OneWorker(State& state, const std::function<void()>& nudge, const http::Request& request,
               http::ResponseWriter& writer) {
  constexpr std::string_view kDrain = "/drain";
  std::string_view name = request.path.substr(std::string_view("/workers/").size());
  if (request.method == "POST" && name.ends_with(kDrain)) {
    name.remove_suffix(kDrain.size());
    return DrainWorker(state, nudge, FindWorker(state, name), writer);
  }
  const auto worker = FindWorker(state, name);
  if (request.method == "DELETE") return DrainWorker(state, nudge, worker, writer);
  if (request.method != "GET") {
    return SendError(writer, 405, "BAD_REQUEST", "GET, DELETE, or POST to …/drain");
  }
  if (!worker) return SendError(writer, 404, "WORKER_NOT_FOUND", "no such worker");
  std::string body;
  JsonWriter json(body);
  WriteWorker(json, *worker);
  SendJson(writer, 200, body);
}

Result<WorkerSpec> SpecOfQuery(std::string_view query) {
  WorkerSpec spec;
  ASSIGN_OR_RETURN(spec.url, NormaliseWorkerUrl(http::QueryValue(query, "url").value_or("")));
  spec.model = http::QueryValue(query, "model_id").value_or("");
  spec.api_key = http::QueryValue(query, "api_key").value_or("");
  return spec;
}

void ListUrls(State& state, http::ResponseWriter& writer) {
  std::string body;
  JsonWriter json(body);
  json.BeginObject();
  json.Key("urls");
  json.BeginArray();
  for (const auto& worker : Fleet(state)) json.String(NameOf(*worker.spec));
  json.EndArray();
  json.EndObject();
  SendJson(writer, 200, body);
}

}  // namespace

void AnswerOwnRoute(State& state, const std::function<void()>& nudge, http::Request& request,
                    http::ResponseWriter writer) {
  const std::string_view path = request.path;
  if (path == "/readiness" || path == "/readyz" || path == "/ready") {
    return Readiness(state, writer);
  }
  if (path == "/metrics") return RenderMetrics(state, writer);
  if (path.starts_with("/v1/models")) return ListModels(state, request, writer);
  if (path == "/get_loads" || path == "/v1/loads") return ListLoads(state, writer);
  if (path == "/list_workers") return ListUrls(state, writer);
  if (path == "/workers") {
    if (request.method == "GET") return ListWorkers(state, writer);
    if (request.method != "POST") return SendError(writer, 405, "BAD_REQUEST", "GET or POST");
    return AddWorker(state, nudge, ParseWorkerSpec(request.body), writer);
  }
  if (path.starts_with("/workers/")) return OneWorker(state, nudge, request, writer);
  if (path == "/add_worker" || path == "/remove_worker") {
    if (request.method != "POST") return SendError(writer, 405, "BAD_REQUEST", "POST");
    if (path == "/add_worker") return AddWorker(state, nudge, SpecOfQuery(request.query), writer);
    const std::string url = http::QueryValue(request.query, "url").value_or("");
    return DrainWorker(state, nudge, FindWorker(state, url), writer);
  }
  SendText(writer, 200, "OK");  // alive, whatever the workers are
}

Result<std::string> NormaliseWorkerUrl(std::string_view url) {
  ASSIGN_OR_RETURN(const http::Url parsed, http::ParseUrl(url));
  std::string out = parsed.endpoint.tls ? "https://" : "http://";
  out += parsed.endpoint.ToString() + parsed.target;
  while (out.ends_with('/')) out.pop_back();
  return out;
}

void SyncWorkers(Router& router, std::string_view source, const std::vector<WorkerSpec>& specs) {
  for (const auto& worker : router.Workers()) {
    if (worker.spec->source != source) continue;
    bool kept = false;
    for (const WorkerSpec& spec : specs) kept = kept || spec.url == worker.spec->url;
    if (!kept) router.Drain(worker.id);
  }
  for (const WorkerSpec& spec : specs) {
    if (const auto added = router.Add(spec); !added.ok()) {
      LOG_WARN("worker {}: {}", spec.url, added.status().message());
    }
  }
}

}  // namespace hayate::gateway
