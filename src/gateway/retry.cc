#include "gateway/retry.h"

#include <algorithm>
#include <cmath>

namespace hayate::gateway {

AttemptEnd EndOfStatus(int status, bool has_retry_after) {
  switch (status) {
    case 429:
      return AttemptEnd::kBusy;
    case 503:
      return has_retry_after ? AttemptEnd::kBusy : AttemptEnd::kFault;
    case 408:
    case 500:
    case 502:
    case 504:
      return AttemptEnd::kFault;
    default:
      return AttemptEnd::kOk;
  }
}

bool IsUnsent(AttemptEnd end) {
  return end == AttemptEnd::kNoConnection || end == AttemptEnd::kStale;
}

bool IsFault(AttemptEnd end) {
  switch (end) {
    case AttemptEnd::kFault:
    case AttemptEnd::kNoConnection:
    case AttemptEnd::kBroken:
    case AttemptEnd::kTimeout:
      return true;
    case AttemptEnd::kOk:
    case AttemptEnd::kBusy:
    case AttemptEnd::kStale:
    case AttemptEnd::kCancelled:
      return false;
  }
  return false;
}

namespace {

bool WorthIt(const RetryInput& input) {
  switch (input.end) {
    case AttemptEnd::kOk:
    case AttemptEnd::kCancelled:
      return false;
    case AttemptEnd::kBusy:
      return input.other_worker && input.safe_route;
    case AttemptEnd::kTimeout:
    case AttemptEnd::kFault:
    case AttemptEnd::kBroken:
    case AttemptEnd::kStale:
      return input.safe_route;
    case AttemptEnd::kNoConnection:
      return true;
  }
  return false;
}

}  // namespace

RetryDecision DecideRetry(const RetryOptions& options, const RetryInput& input, Rng& jitter) {
  const bool unsent = IsUnsent(input.end);
  const bool left = unsent ? input.unsent_so_far < kMaxUnsent && options.max_retries > 0
                           : input.retries_so_far < options.max_retries;
  if (!options.enabled || input.client_has_bytes || !input.body_is_whole || !left ||
      !WorthIt(input)) {
    return {};
  }
  // Another worker is not to blame for this one's failure, and a fresh connection not for a stale
  // one: no wait.
  if (unsent || (input.other_worker && input.retries_so_far == 0)) {
    return {.retry = true};
  }
  const double backoff = std::min(static_cast<double>(options.initial_backoff_ns) *
                                      std::pow(options.multiplier, input.retries_so_far),
                                  static_cast<double>(options.max_backoff_ns));
  const double spread = 1.0 + options.jitter * (2.0 * jitter.NextFloat() - 1.0);
  return {.retry = true, .delay_ns = static_cast<int64_t>(backoff * spread)};
}

}  // namespace hayate::gateway
