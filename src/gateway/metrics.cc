#include "gateway/metrics.h"

#include <fmt/format.h>

#include <functional>
#include <iterator>

namespace hayate::gateway {
namespace {

obs::Counter& Requests(obs::Registry& registry, const char* outcome) {
  return registry.AddCounter({"hayate_gateway_requests_total",
                              "Requests answered, by class of status",
                              {{"status", outcome}}});
}

obs::Counter& Refused(obs::Registry& registry, const char* reason) {
  return registry.AddCounter({"hayate_gateway_refused_total",
                              "Requests refused before they reached a worker",
                              {{"reason", reason}}});
}

std::string Escaped(std::string_view value) {
  std::string out;
  for (char c : value) {
    if (c == '"' || c == '\\') out.push_back('\\');
    out.push_back(c == '\n' ? ' ' : c);
  }
  return out;
}

using Value = std::function<double(const Router::WorkerView&)>;

void AppendFamily(std::string& out, const std::vector<Router::WorkerView>& workers,
                  std::string_view name, std::string_view type, std::string_view help,
                  const Value& value) {
  fmt::format_to(std::back_inserter(out), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
  for (const auto& worker : workers) {
    fmt::format_to(std::back_inserter(out), "{}{{worker=\"{}\",role=\"{}\"}} {}\n", name,
                   Escaped(NameOf(*worker.spec)), RoleName(worker.role), value(worker));
  }
}

}  // namespace

Metrics::Metrics(obs::Registry& registry)
    : requests_2xx(Requests(registry, "2xx")),
      requests_4xx(Requests(registry, "4xx")),
      requests_5xx(Requests(registry, "5xx")),
      requests_cancelled(Requests(registry, "cancelled")),
      retries(registry.AddCounter(
          {"hayate_gateway_retries_total", "Attempts after the first of a request", {}})),
      retries_exhausted(registry.AddCounter({"hayate_gateway_retries_exhausted_total",
                                             "Requests that failed after their last attempt",
                                             {}})),
      hedges(registry.AddCounter({"hayate_gateway_hedges_total",
                                  "Second attempts beside one that was slow to answer",
                                  {}})),
      hedges_won(registry.AddCounter(
          {"hayate_gateway_hedges_won_total", "Second attempts that answered first", {}})),
      broken_streams(registry.AddCounter(
          {"hayate_gateway_broken_streams_total", "Streams ended by an error event", {}})),
      refused_limit(Refused(registry, "rate")),
      refused_queue(Refused(registry, "queue_full")),
      refused_key(Refused(registry, "key_limit")),
      queue_timeouts(Refused(registry, "queue_timeout")),
      room_timeouts(Refused(registry, "no_worker")),
      running(registry.AddGauge(
          {"hayate_gateway_requests_running", "Requests under way, queued ones included", {}})),
      duration_s(registry.AddHistogram(
          {"hayate_gateway_request_duration_seconds", "From the request's arrival to its end", {}},
          obs::ExponentialBounds(0.001, 2.0, 20))),
      first_byte_s(registry.AddHistogram({"hayate_gateway_first_byte_seconds",
                                          "From the request's arrival to the answer's first byte",
                                          {}},
                                         obs::ExponentialBounds(0.001, 2.0, 20))) {}

obs::Counter& Metrics::ForStatus(int status) {
  if (status < 400) return requests_2xx;
  return status < 500 ? requests_4xx : requests_5xx;
}

std::string RenderFleet(const std::vector<Router::WorkerView>& workers, const FleetTotals& totals) {
  using View = Router::WorkerView;
  std::string out;
  AppendFamily(out, workers, "hayate_gateway_worker_up", "gauge", "1 when it takes requests",
               [](const View& w) { return w.state == WorkerState::kReady ? 1.0 : 0.0; });
  AppendFamily(out, workers, "hayate_gateway_worker_requests", "gauge", "Requests in flight",
               [](const View& w) { return static_cast<double>(w.requests); });
  AppendFamily(out, workers, "hayate_gateway_worker_tokens", "gauge",
               "Estimated tokens of work in flight",
               [](const View& w) { return static_cast<double>(w.tokens); });
  AppendFamily(out, workers, "hayate_gateway_worker_requests_total", "counter",
               "Attempts sent to it", [](const View& w) { return static_cast<double>(w.total); });
  AppendFamily(out, workers, "hayate_gateway_worker_faults_total", "counter",
               "Attempts that it failed",
               [](const View& w) { return static_cast<double>(w.faults); });
  AppendFamily(out, workers, "hayate_gateway_worker_breaker_state", "gauge",
               "0 closed, 1 open, 2 half-open",
               [](const View& w) { return static_cast<double>(w.breaker); });
  AppendFamily(out, workers, "hayate_gateway_worker_breaker_opened_total", "counter",
               "Times that its breaker opened",
               [](const View& w) { return static_cast<double>(w.breaker_opened); });
  AppendFamily(out, workers, "hayate_gateway_worker_ejected_total", "counter",
               "Times that it was ejected as an outlier",
               [](const View& w) { return static_cast<double>(w.ejected); });
  AppendFamily(out, workers, "hayate_gateway_worker_waiting", "gauge",
               "Requests waiting, as it last reported",
               [](const View& w) { return static_cast<double>(w.reported.waiting); });
  AppendFamily(out, workers, "hayate_gateway_worker_token_usage", "gauge",
               "Share of its KV cache in use, as it last reported",
               [](const View& w) { return w.reported.token_usage; });
  fmt::format_to(std::back_inserter(out),
                 "# HELP hayate_gateway_queue_length Requests waiting for room\n"
                 "# TYPE hayate_gateway_queue_length gauge\nhayate_gateway_queue_length {}\n"
                 "# HELP hayate_gateway_waiting_room Requests waiting for a worker to come up\n"
                 "# TYPE hayate_gateway_waiting_room gauge\nhayate_gateway_waiting_room {}\n"
                 "# HELP hayate_gateway_policy_bytes Memory of what the policies remember\n"
                 "# TYPE hayate_gateway_policy_bytes gauge\nhayate_gateway_policy_bytes {}\n",
                 totals.num_queued, totals.num_waiting, totals.policy_bytes);
  return out;
}

}  // namespace hayate::gateway
