#pragma once
// Load for what sits between clients and workers: many small requests, many streams or large
// bodies, from one thread, with exact latencies.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "http/endpoint.h"

namespace hayate::bench {

struct ProxyLoadOptions {
  http::Endpoint endpoint;
  std::string path = "/v1/chat/completions";
  std::string body;                  // the same for every request
  std::vector<std::string> prompts;  // or these in turn, when not empty: whole bodies
  int concurrency = 32;              // requests under way at most
  double rate = 0.0;                 // requests a second, evenly spaced; 0: as fast as answers come
  std::chrono::milliseconds warmup{500};
  std::chrono::milliseconds duration{5'000};
};

struct ProxyLoadResult {
  uint64_t requests = 0;  // answered 200 within the measured time
  uint64_t failed = 0;    // anything else
  uint64_t events = 0;    // "data:" lines of the answers
  uint64_t bytes = 0;     // of the answers' bodies
  double seconds = 0.0;
  std::vector<double> latency_us;     // to the end of the answer, sorted
  std::vector<double> first_byte_us;  // to its first byte, sorted
  std::string first_error;
};

// Blocks the calling thread, which does the work.
Result<ProxyLoadResult> RunProxyLoad(const ProxyLoadOptions& options);

// Of sorted samples, 0 ≤ q ≤ 1; 0 when there are none.
double Quantile(const std::vector<double>& sorted, double q);

}  // namespace hayate::bench
