#include "sched/step_times.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace hayate::sched {
namespace {

// Times follow what is seen slowly, and a step that something else held up counts as twice the time
// before. A prompt token's cost rises at once: as prompts grow their attention does, and chunks
// that were tried too large are to be tried seldom.
constexpr double kDecodeShare = 0.25;
constexpr double kCheaperShare = 0.125;
constexpr double kMostRise = 2.0;
constexpr double kTellingPart = 0.25;

}  // namespace

size_t StepTimes::ClassOf(int32_t decodes) {
  const auto width = static_cast<size_t>(std::bit_width(static_cast<uint32_t>(decodes)));
  return std::min(width - 1, kClasses - 1);
}

bool StepTimes::Fresh(const DecodeTime& time) const {
  return time.step > 0 && num_steps_ - time.step <= kFreshSteps;
}

std::optional<double> StepTimes::DecodeNs(int32_t decodes) const {
  for (size_t c = ClassOf(decodes) + 1; c-- > 0;) {
    if (Fresh(decode_[c])) return decode_[c].ns;
  }
  return std::nullopt;
}

void StepTimes::Add(int32_t decodes, int32_t prompt_tokens, double ns) {
  ++num_steps_;
  if (decodes <= 0 || ns <= 0.0) return;
  if (prompt_tokens == 0) {
    DecodeTime& time = decode_[ClassOf(decodes)];
    time.ns =
        Fresh(time) ? time.ns + kDecodeShare * (std::min(ns, kMostRise * time.ns) - time.ns) : ns;
    time.step = num_steps_;
    return;
  }
  const std::optional<double> decode_ns = DecodeNs(decodes);
  if (!decode_ns) return;
  const double seen = std::max(0.0, ns - *decode_ns) / prompt_tokens;
  if (!token_ns_ || *token_ns_ == 0.0) {
    token_ns_ = seen;
  } else if (seen > *token_ns_) {
    token_ns_ = std::min(seen, kMostRise * *token_ns_);
  } else if (prompt_tokens * *token_ns_ >= kTellingPart * *decode_ns) {
    *token_ns_ += kCheaperShare * (seen - *token_ns_);
  }
}

std::optional<int32_t> StepTimes::DoublingTokens(int32_t decodes) const {
  const std::optional<double> decode_ns = DecodeNs(decodes);
  if (!decode_ns || !token_ns_) return std::nullopt;
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  // Tokens that cost nothing double nothing.
  if (*decode_ns >= *token_ns_ * kMost) return kMost;
  return static_cast<int32_t>(*decode_ns / *token_ns_);
}

}  // namespace hayate::sched
