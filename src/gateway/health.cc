#include "gateway/health.h"

#include <algorithm>

namespace hayate::gateway {

void Health::OnProbe(bool good, int64_t now_ns) {
  good_ = good ? good_ + 1 : 0;
  bad_ = good ? 0 : bad_ + 1;
  switch (state_) {
    case State::kPending:
      if (good) Rise(now_ns);
      break;
    case State::kUp:
      if (bad_ >= options_.failure_threshold) Fall();
      break;
    case State::kDown:
      if (good_ >= options_.success_threshold) Rise(now_ns);
      break;
  }
  next_probe_ns_ = now_ns + NextWait();
}

int64_t Health::NextWait() {
  if (state_ == State::kUp && bad_ == 0) return options_.interval_ns;
  if (state_ != State::kDown) return options_.recovery_interval_ns;
  // The second good probe need not wait long for the first.
  if (good_ > 0) recovery_ns_ = kFirstRecoveryNs;
  const int64_t wait_ns = std::min(recovery_ns_, options_.recovery_interval_ns);
  recovery_ns_ = std::min(2 * recovery_ns_, options_.recovery_interval_ns);
  return wait_ns;
}

void Health::OnLost(int64_t now_ns) {
  if (state_ == State::kUp) Fall();
  if (state_ == State::kDown) next_probe_ns_ = std::min(next_probe_ns_, now_ns + recovery_ns_);
}

void Health::Fall() {
  state_ = State::kDown;
  good_ = 0;
  recovery_ns_ = std::min(kFirstRecoveryNs, options_.recovery_interval_ns);
}

void Health::Rise(int64_t now_ns) {
  state_ = State::kUp;
  bad_ = 0;
  up_since_ns_ = now_ns;
}

double Health::Weight(int64_t now_ns) const {
  if (options_.slow_start_ns <= 0) return 1.0;
  const double share =
      static_cast<double>(now_ns - up_since_ns_) / static_cast<double>(options_.slow_start_ns);
  return std::clamp(kFirstWeight + (1.0 - kFirstWeight) * share, kFirstWeight, 1.0);
}

}  // namespace hayate::gateway
