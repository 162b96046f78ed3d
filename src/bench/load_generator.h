#pragma once
// Sends a workload to a server and times its streams. One thread carries all of them; the caller's
// thread keeps the arrival times.
//
// A request is sent when it has arrived and fewer than max_concurrency are in flight. With arrivals
// at 0 and a limit this is a closed loop; with a rate and no limit an open one. Every request ends:
// with its answer, an error, or its timeout.

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "bench/load_report.h"
#include "bench/stream_dialect.h"
#include "bench/workload.h"
#include "http/endpoint.h"

namespace hayate::bench {

// What is in flight at once, whatever the caller asks for; further requests wait.
inline constexpr int32_t kMaxConcurrency = 16384;

struct LoadProgressReport {
  int32_t done = 0;
  int32_t failed = 0;  // of `done`
  int32_t in_flight = 0;
};

struct LoadOptions {
  http::Endpoint endpoint;
  DialectOptions dialect;
  int32_t max_concurrency = 0;                           // 0: kMaxConcurrency
  std::chrono::milliseconds request_timeout{3'600'000};  // sent to the end of the stream
  // A few times a second, on the caller's thread.
  std::function<void(const LoadProgressReport&)> progress;
};

// Blocks until every request has ended. `arrival_s` as of ArrivalTimes, one each. An error only
// where nothing could be sent at all: the host is unknown, or no thread starts.
Result<LoadResult> RunLoad(const LoadOptions& options, std::span<const PlannedRequest> workload,
                           std::span<const double> arrival_s);

}  // namespace hayate::bench
