#include "gateway/circuit_breaker.h"

namespace hayate::gateway {

bool CircuitBreaker::Allows(int64_t now_ns) {
  if (!options_.enabled || state_ == State::kClosed) return true;
  if (state_ == State::kOpen) {
    if (now_ns < open_until_ns_) return false;
    state_ = State::kHalfOpen;
    successes_ = 0;
    probing_ = false;
  }
  return !probing_;
}

void CircuitBreaker::Admit() {
  if (state_ == State::kHalfOpen) probing_ = true;
}

void CircuitBreaker::Succeed() {
  failures_ = 0;
  if (state_ != State::kHalfOpen) return;
  probing_ = false;
  if (++successes_ >= options_.success_threshold) state_ = State::kClosed;
}

void CircuitBreaker::Fail(int64_t now_ns) {
  if (state_ == State::kHalfOpen) return Open(now_ns);
  if (state_ == State::kOpen) return;  // begun before it opened
  if (now_ns - last_failure_ns_ > options_.window_ns) failures_ = 0;
  last_failure_ns_ = now_ns;
  if (++failures_ >= options_.failure_threshold && options_.enabled) Open(now_ns);
}

void CircuitBreaker::Abandon() { probing_ = false; }

void CircuitBreaker::Open(int64_t now_ns) {
  state_ = State::kOpen;
  open_until_ns_ = now_ns + options_.open_ns;
  failures_ = 0;
  probing_ = false;
  ++times_opened_;
}

}  // namespace hayate::gateway
