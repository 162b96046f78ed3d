#pragma once
// A rate with a burst. May go into debt: a cost that is known only afterwards is charged then, and
// the next ones wait for it. Pure: time is an argument.

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace hayate::gateway {

class TokenBucket {
 public:
  // `rate` per second; 0: no limit. Full at first.
  TokenBucket(double rate, double burst)
      : rate_(rate), burst_(std::max(burst, 1.0)), level_(std::max(burst, 1.0)) {}

  // Whether one is left.
  bool Available(int64_t now_ns) {
    if (rate_ <= 0.0) return true;
    Refill(now_ns);
    return level_ >= 1.0;
  }
  // Takes `amount`, into debt when it must.
  void Charge(double amount) {
    if (rate_ > 0.0) level_ -= amount;
  }
  // Whole seconds until Available(), at least 1: what Retry-After says.
  int64_t SecondsUntilAvailable() const {
    if (rate_ <= 0.0 || level_ >= 1.0) return 1;
    return std::max<int64_t>(1, static_cast<int64_t>(std::ceil((1.0 - level_) / rate_)));
  }
  double level() const { return level_; }

 private:
  void Refill(int64_t now_ns) {
    if (now_ns > updated_ns_) {
      level_ = std::min(burst_, level_ + rate_ * static_cast<double>(now_ns - updated_ns_) * 1e-9);
    }
    updated_ns_ = std::max(updated_ns_, now_ns);
  }

  double rate_;
  double burst_;
  double level_;
  int64_t updated_ns_ = 0;
};

}  // namespace hayate::gateway
