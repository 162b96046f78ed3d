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
      if (bad_ >= options_.failure_threshold) state_ = State::kDown;
      break;
    case State::kDown:
      if (good_ >= options_.success_threshold) Rise(now_ns);
      break;
  }
  const bool steady = state_ == State::kUp && bad_ == 0;
  next_probe_ns_ = now_ns + (steady ? options_.interval_ns : options_.recovery_interval_ns);
}

void Health::OnRefused(int64_t now_ns) {
  if (state_ == State::kUp) {
    state_ = State::kDown;
    good_ = 0;
  }
  next_probe_ns_ = std::min(next_probe_ns_, now_ns + options_.recovery_interval_ns);
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
