#pragma once
// When a request may be tried again, and after how long. One rule for the whole gateway:
//
//   the client has seen no byte of an answer, and
//     nothing was sent to the worker (no connection), or
//     the route only computes (inference, GET), so that doing it twice harms nobody
//
// A busy answer (429, or 503 with Retry-After) is worth another worker but no second try at the
// same one; a client's mistake (other 4xx) is never retried. Pure.

#include <cstdint>

#include "base/rng.h"

namespace hayate::gateway {

struct RetryOptions {
  bool enabled = true;
  int max_retries = 5;
  int64_t initial_backoff_ns = 50'000'000;
  int64_t max_backoff_ns = 30'000'000'000;
  double multiplier = 1.5;
  double jitter = 0.2;  // of the back-off, either way
};

// A second attempt beside one that is slow to begin its answer; the first answer wins.
struct HedgeOptions {
  int64_t after_ns = 0;     // without the head of an answer; 0: never
  double max_share = 0.05;  // of the requests: when all are slow, doubling them helps nobody
};

// How an attempt ended.
enum class AttemptEnd : uint8_t {
  kOk,            // an answer below 500 that is not 408 or 429
  kBusy,          // 429, or 503 with Retry-After: alive, but full
  kFault,         // 408, 500, 502, 503, 504
  kNoConnection,  // refused, unreachable, connect timeout: nothing was sent
  kStale,         // a reused connection closed without a byte: the worker had hung up before
  kBroken,        // closed or garbled after the request was sent
  kTimeout,       // no first byte in time, or silence in the middle
  kCancelled,     // the client left
};

// What an HTTP status says.
AttemptEnd EndOfStatus(int status, bool has_retry_after);
// Nothing reached the worker. Such an attempt costs no retry, for its worker is down from here on
// and the next one goes elsewhere or waits; kMaxUnsent bounds them still.
bool IsUnsent(AttemptEnd end);
inline constexpr int kMaxUnsent = 8;
// Whether the end speaks against the worker: counted by its breaker.
bool IsFault(AttemptEnd end);

struct RetryInput {
  AttemptEnd end = AttemptEnd::kOk;
  int retries_so_far = 0;         // of attempts that reached a worker
  int unsent_so_far = 0;          // of those that did not
  bool client_has_bytes = false;  // of the answer
  bool body_is_whole = true;      // false: part of a streamed body is gone
  bool safe_route = false;        // computes only
  bool other_worker = false;      // an untried one is available
};

struct RetryDecision {
  bool retry = false;
  int64_t delay_ns = 0;
};

RetryDecision DecideRetry(const RetryOptions& options, const RetryInput& input, Rng& jitter);

}  // namespace hayate::gateway
