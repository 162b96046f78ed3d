#include "gateway/circuit_breaker.h"

#include <algorithm>

namespace hayate::gateway {
namespace {

// How long OnAlive is not believed after a first failed trial; doubled with each further one.
constexpr int64_t kFirstDoubtNs = 500'000'000;
constexpr int kMaxDoublings = 16;

}  // namespace

bool CircuitBreaker::Allows(int64_t now_ns) {
  if (!options_.enabled || state_ == State::kClosed) return true;
  if (state_ == State::kOpen) {
    if (now_ns < open_until_ns_) return false;
    HalfOpen();
  }
  return !trial_ || now_ns - trial_since_ns_ >= kTrialPatienceNs;
}

CircuitBreaker::Pass CircuitBreaker::Admit(int64_t now_ns) {
  if (state_ != State::kHalfOpen) return Pass::kFree;
  trial_ = true;
  trial_since_ns_ = now_ns;
  return Pass::kTrial;
}

void CircuitBreaker::Succeed(Pass pass) {
  if (state_ == State::kClosed) failures_ = 0;
  // What began before it opened says nothing of the worker since.
  if (state_ != State::kHalfOpen || pass != Pass::kTrial) return;
  trial_ = false;
  if (++successes_ < options_.success_threshold) return;
  state_ = State::kClosed;
  failures_ = 0;
  reopenings_ = 0;
}

void CircuitBreaker::Fail(Pass pass, int64_t now_ns) {
  if (state_ == State::kHalfOpen && pass == Pass::kTrial) {
    ++reopenings_;
    return Open(now_ns);
  }
  if (state_ != State::kClosed) return;  // begun before it opened
  if (now_ns - last_failure_ns_ > options_.window_ns) failures_ = 0;
  last_failure_ns_ = now_ns;
  if (++failures_ >= options_.failure_threshold && options_.enabled) Open(now_ns);
}

void CircuitBreaker::Abandon(Pass pass) {
  if (pass == Pass::kTrial) trial_ = false;
}

void CircuitBreaker::OnAlive(int64_t now_ns) {
  open_until_ns_ = std::min(open_until_ns_, std::max(now_ns, believe_after_ns_));
}

void CircuitBreaker::OnReturn() {
  if (options_.enabled) HalfOpen();
}

void CircuitBreaker::HalfOpen() {
  state_ = State::kHalfOpen;
  successes_ = 0;
  trial_ = false;
}

void CircuitBreaker::Open(int64_t now_ns) {
  state_ = State::kOpen;
  open_until_ns_ = now_ns + options_.open_ns;
  const int64_t doubt_ns =
      reopenings_ == 0 ? 0 : kFirstDoubtNs << std::min(reopenings_ - 1, kMaxDoublings);
  believe_after_ns_ = now_ns + std::min(doubt_ns, options_.open_ns);
  failures_ = 0;
  trial_ = false;
  ++times_opened_;
}

}  // namespace hayate::gateway
