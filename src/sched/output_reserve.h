#pragma once
// How much of their remaining output the running sequences are assumed to still produce, when a new
// one asks for memory. Too low and sequences are retracted, too high and memory idles: the ratio
// falls slowly while all goes well and jumps after a retraction. Owner: engine thread.

#include <algorithm>
#include <cstdint>

namespace hayate::sched {

class OutputReserve {
 public:
  // Tokens to keep free for a sequence that may still produce `remaining`.
  int32_t TokensFor(int32_t remaining) const {
    return static_cast<int32_t>(static_cast<float>(std::min(remaining, kMaxTokens)) * ratio_);
  }
  void OnStep() { ratio_ = std::max(kMinRatio, ratio_ - kDecayPerStep); }
  void OnRetraction() { ratio_ = 1.0f; }
  float ratio() const { return ratio_; }

 private:
  // Answers are rarely as long as their limit; beyond this nobody reserves.
  static constexpr int32_t kMaxTokens = 4096;
  static constexpr float kInitialRatio = 0.7f;
  static constexpr float kMinRatio = 0.1f;
  static constexpr float kDecayPerStep = 0.001f;  // 600 steps from initial to minimum
  float ratio_ = kInitialRatio;
};

}  // namespace hayate::sched
