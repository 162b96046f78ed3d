#pragma once
// What the gateway counts about requests. Per-worker samples are rendered from the fleet itself.

#include <string>

#include "gateway/router.h"
#include "obs/metrics.h"

namespace hayate::gateway {

struct Metrics {
  explicit Metrics(obs::Registry& registry);

  obs::Counter& requests_2xx;
  obs::Counter& requests_4xx;
  obs::Counter& requests_5xx;
  obs::Counter& requests_cancelled;
  obs::Counter& retries;
  obs::Counter& retries_exhausted;
  obs::Counter& hedges;
  obs::Counter& hedges_won;
  obs::Counter& broken_streams;
  obs::Counter& refused_limit;
  obs::Counter& refused_queue;
  obs::Counter& refused_key;
  obs::Counter& queue_timeouts;
  obs::Counter& room_timeouts;
  obs::Gauge& running;
  obs::Histogram& duration_s;
  obs::Histogram& first_byte_s;

  obs::Counter& ForStatus(int status);
};

struct FleetTotals {
  int64_t num_queued = 0;   // for room below max_concurrent
  int64_t num_waiting = 0;  // for a worker to come up
  size_t policy_bytes = 0;
};

// Prometheus lines of the fleet: state, load and failures of each worker.
std::string RenderFleet(const std::vector<Router::WorkerView>& workers, const FleetTotals& totals);

}  // namespace hayate::gateway
