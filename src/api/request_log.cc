#include "api/request_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "base/json_writer.h"

namespace hayate::api {
namespace {

constexpr size_t kMaxRequestId = 128;
constexpr double kNsPerSecond = 1e9;
constexpr double kMsPerNs = 1e-6;

int64_t UnixNs() {
  return std::chrono::system_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

bool IsLowerHex(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool IsZero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

// A client's id is taken as it is if it fits a header and a line.
std::string RequestIdOf(const http::Request& request, Rng& rng) {
  const std::string_view sent = request.headers.Find("x-request-id").value_or("");
  const bool fits = !sent.empty() && sent.size() <= kMaxRequestId &&
                    std::ranges::all_of(sent, [](char c) { return c > ' ' && c < 0x7f; });
  if (fits) return std::string(sent);
  return fmt::format("req-{:016x}{:08x}", rng.NextU64(), rng.NextU32());
}

void WriteAttribute(JsonWriter& json, std::string_view key, std::string_view value) {
  json.BeginObject();
  json.Field("key", key);
  json.Key("value");
  json.BeginObject();
  json.Field("stringValue", value);
  json.EndObject();
  json.EndObject();
}
// OTLP writes 64-bit integers as strings.
void WriteAttribute(JsonWriter& json, std::string_view key, int64_t value) {
  json.BeginObject();
  json.Field("key", key);
  json.Key("value");
  json.BeginObject();
  json.Field("intValue", std::to_string(value));
  json.EndObject();
  json.EndObject();
}
void WriteEvent(JsonWriter& json, std::string_view name, int64_t unix_ns) {
  json.BeginObject();
  json.Field("timeUnixNano", std::to_string(unix_ns));
  json.Field("name", name);
  json.EndObject();
}

}  // namespace

TraceContext ReadTraceContext(std::string_view traceparent, Rng& rng) {
  // version "-" trace id "-" parent id "-" flags; a later version may add fields behind.
  constexpr size_t kLength = 2 + 1 + 32 + 1 + 16 + 1 + 2;
  TraceContext trace;
  trace.span_id = fmt::format("{:016x}", rng.NextU64() | 1);
  const std::string_view version = traceparent.substr(0, 2);
  const bool shaped = traceparent.size() >= kLength && traceparent[2] == '-' &&
                      traceparent[35] == '-' && traceparent[52] == '-' && IsLowerHex(version) &&
                      version != "ff" && (version != "00" || traceparent.size() == kLength) &&
                      (traceparent.size() == kLength || traceparent[kLength] == '-');
  if (shaped) {
    const std::string_view id = traceparent.substr(3, 32);
    const std::string_view parent = traceparent.substr(36, 16);
    const std::string_view flags = traceparent.substr(53, 2);
    if (IsLowerHex(id) && IsLowerHex(parent) && IsLowerHex(flags) && !IsZero(id) &&
        !IsZero(parent)) {
      trace.trace_id = id;
      trace.parent_id = parent;
      trace.sampled = (flags[1] - (flags[1] >= 'a' ? 'a' - 10 : '0')) & 1;
      return trace;
    }
  }
  trace.trace_id = fmt::format("{:016x}{:016x}", rng.NextU64(), rng.NextU64() | 1);
  return trace;
}

RequestLog::RequestLog(Options options, obs::Registry& registry)
    : options_(std::move(options)),
      active_(registry.AddGauge({"sglang:http_requests_active", "HTTP requests under way", {}})),
      requests_(registry.AddCounter({"sglang:http_requests_total", "HTTP requests begun", {}})) {
  for (const int status : {200, 400, 401, 403, 404, 408, 413, 429, 499, 500, 503, 0}) {
    const std::string label = status == 0 ? "other" : std::to_string(status);
    responses_.push_back({status, &registry.AddCounter({"sglang:http_responses_total",
                                                        "HTTP answers by status; 499: the client "
                                                        "went away first",
                                                        {{"status_code", label}}})});
  }
}

std::shared_ptr<RequestRecord> RequestLog::Begin(const http::Request& request, Rng& rng) {
  auto record = std::make_shared<RequestRecord>();
  record->request_id = RequestIdOf(request, rng);
  record->method = request.method;
  record->path = request.path;
  record->peer = request.peer;
  record->bytes_in = request.body_bytes.value_or(request.body.size());
  record->begin_unix_ns = UnixNs();
  record->begin_ns = SteadyClock().NowNs();
  record->trace = ReadTraceContext(request.headers.Find("traceparent").value_or(""), rng);
  active_.Add(1);
  requests_.Increment();
  return record;
}

void RequestLog::End(const RequestRecord& record, const http::Answered& answered) {
  active_.Add(-1);
  Count(answered);
  if (options_.access == nullptr && options_.spans == nullptr) return;
  const int64_t now_ns = SteadyClock().NowNs();
  if (options_.access != nullptr) AddAccessLine(record, answered, now_ns);
  if (options_.spans != nullptr && record.trace.sampled) AddSpan(record, answered, now_ns);
}

void RequestLog::Count(const http::Answered& answered) {
  const int status = answered.status == 0 ? 499 : answered.status;
  for (const StatusCount& entry : responses_) {
    if (entry.status != status && entry.status != 0) continue;
    entry.count->Increment();
    return;
  }
}

void RequestLog::AddAccessLine(const RequestRecord& record, const http::Answered& answered,
                               int64_t now_ns) {
  std::string line;
  JsonWriter json(line);
  json.BeginObject();
  json.Field("time", static_cast<double>(record.begin_unix_ns) / kNsPerSecond);
  json.Field("request_id", record.request_id);
  json.Field("trace_id", record.trace.trace_id);
  json.Field("peer", record.peer);
  json.Field("key", record.key_id);
  json.Field("method", record.method);
  json.Field("path", record.path);
  json.Field("status", answered.status);
  json.Field("complete", answered.complete);
  json.Field("total_ms", static_cast<double>(now_ns - record.begin_ns) * kMsPerNs);
  json.Field("bytes_in", record.bytes_in);
  json.Field("bytes_out", answered.body_bytes);
  if (record.generates) {
    if (record.first_token_ns != 0) {
      json.Field("first_token_ms",
                 static_cast<double>(record.first_token_ns - record.begin_ns) * kMsPerNs);
    }
    json.Field("prompt_tokens", record.prompt_tokens);
    json.Field("cached_tokens", record.cached_tokens);
    json.Field("completion_tokens", record.completion_tokens);
  }
  json.EndObject();
  options_.access->Add(line);
}

// One ResourceSpans a line: what the OpenTelemetry collector reads with its otlpjsonfile receiver.
void RequestLog::AddSpan(const RequestRecord& record, const http::Answered& answered,
                         int64_t now_ns) {
  constexpr int kServerKind = 2;
  constexpr int kErrorStatus = 2;
  const auto unix_ns = [&](int64_t steady_ns) {
    return record.begin_unix_ns + (steady_ns - record.begin_ns);
  };
  std::string line;
  JsonWriter json(line);
  json.BeginObject();
  json.Key("resourceSpans"), json.BeginArray(), json.BeginObject();
  json.Key("resource"), json.BeginObject();
  json.Key("attributes"), json.BeginArray();
  WriteAttribute(json, "service.name", options_.service_name);
  json.EndArray(), json.EndObject();
  json.Key("scopeSpans"), json.BeginArray(), json.BeginObject();
  json.Key("scope"), json.BeginObject(), json.Field("name", "hayate.api"), json.EndObject();
  json.Key("spans"), json.BeginArray(), json.BeginObject();
  json.Field("traceId", record.trace.trace_id);
  json.Field("spanId", record.trace.span_id);
  if (!record.trace.parent_id.empty()) json.Field("parentSpanId", record.trace.parent_id);
  json.Field("name", record.method + " " + record.path);
  json.Field("kind", kServerKind);
  json.Field("startTimeUnixNano", std::to_string(record.begin_unix_ns));
  json.Field("endTimeUnixNano", std::to_string(unix_ns(now_ns)));
  json.Key("attributes"), json.BeginArray();
  WriteAttribute(json, "http.request.method", record.method);
  WriteAttribute(json, "url.path", record.path);
  WriteAttribute(json, "http.response.status_code", int64_t{answered.status});
  WriteAttribute(json, "client.address", record.peer);
  WriteAttribute(json, "http.request.id", record.request_id);
  if (record.generates) {
    WriteAttribute(json, "gen_ai.usage.input_tokens", record.prompt_tokens);
    WriteAttribute(json, "gen_ai.usage.output_tokens", record.completion_tokens);
    WriteAttribute(json, "gen_ai.usage.cached_tokens", record.cached_tokens);
  }
  json.EndArray();
  json.Key("events"), json.BeginArray();
  if (record.prepared_ns != 0) WriteEvent(json, "prompt ready", unix_ns(record.prepared_ns));
  if (record.first_token_ns != 0) WriteEvent(json, "first token", unix_ns(record.first_token_ns));
  json.EndArray();
  json.Key("status"), json.BeginObject();
  if (answered.status >= 500 || !answered.complete) json.Field("code", kErrorStatus);
  json.EndObject();
  json.EndObject(), json.EndArray();
  json.EndObject(), json.EndArray();
  json.EndObject(), json.EndArray();
  json.EndObject();
  options_.spans->Add(line);
}

}  // namespace hayate::api
