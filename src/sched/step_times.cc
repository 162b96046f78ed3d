#include "sched/step_times.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace hayate::sched {
namespace {

// After so many steps one counts a third.
constexpr double kMemorySteps = 256.0;
// A step that something else held up counts as so many times what was foretold, and one that seemed
// to take no time, because the host looked late at the step before, as such a part of it.
constexpr double kMostSurprise = 2.0;
// Of the sum of all steps' weights: decides where the steps seen do not tell two parts apart.
constexpr double kRidge = 1e-4;
// So much of a part has about the cost of a step. What a step with prompts costs whatever its
// tokens is less, so what the steps seen do not tell apart is taken for the tokens' cost.
constexpr double kMixedPart = 0.25;
constexpr double kManyRows = 64.0, kManyKeys = 65536.0, kManyTokens = 256.0,
                 kManyPositions = 4096.0;

double Dot(const auto& a, const auto& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

}  // namespace

StepTimes::Parts StepTimes::PartsOf(const StepLoad& load) {
  const bool mixed = load.prompt_tokens > 0;
  return {1.0,
          load.decodes / kManyRows,
          static_cast<double>(load.keys) / kManyKeys,
          mixed ? kMixedPart : 0.0,
          load.prompt_tokens / kManyTokens,
          mixed ? load.position / kManyPositions : 0.0};
}

void StepTimes::Add(const StepLoad& load, double ns) {
  if (load.decodes <= 0 || ns <= 0.0) return;
  Parts parts = PartsOf(load);
  if (seen_plain_ && seen_mixed_) {
    const double foretold = Dot(Costs(), parts);
    if (foretold > 0.0) ns = std::clamp(ns, foretold / kMostSurprise, kMostSurprise * foretold);
  }
  for (double& part : parts) part /= ns;
  constexpr double kKept = 1.0 - 1.0 / kMemorySteps;
  for (size_t i = 0; i < kParts; ++i) {
    for (size_t j = 0; j < kParts; ++j) {
      products_[i][j] = kKept * products_[i][j] + parts[i] * parts[j];
    }
    sums_[i] = kKept * sums_[i] + parts[i];
  }
  (load.prompt_tokens > 0 ? seen_mixed_ : seen_plain_) = true;
}

StepTimes::Parts StepTimes::Costs() const {
  auto rows = products_;
  Parts costs = sums_;
  // Positive definite, so elimination needs no pivots.
  for (size_t i = 0; i < kParts; ++i) rows[i][i] += kRidge * products_[kStep][kStep];
  for (size_t i = 0; i < kParts; ++i) {
    for (size_t j = i + 1; j < kParts; ++j) {
      const double factor = rows[j][i] / rows[i][i];
      for (size_t k = i; k < kParts; ++k) rows[j][k] -= factor * rows[i][k];
      costs[j] -= factor * costs[i];
    }
  }
  for (size_t i = kParts; i-- > 0;) {
    for (size_t k = i + 1; k < kParts; ++k) costs[i] -= rows[i][k] * costs[k];
    costs[i] /= rows[i][i];
  }
  return costs;
}

std::optional<int32_t> StepTimes::PromptTokensWithin(const StepLoad& load, double times) const {
  if (!seen_plain_ || !seen_mixed_) return std::nullopt;
  const Parts costs = Costs();
  StepLoad plain = load;
  plain.prompt_tokens = 0;
  const double plain_ns = Dot(costs, PartsOf(plain));
  const double token_ns = costs[kToken] / kManyTokens;
  if (plain_ns <= 0.0) return std::nullopt;
  // Attention costs no less where it has more to read, whatever noise says.
  const double position_ns = std::max(0.0, costs[kPosition]) * load.position / kManyPositions;
  const double room_ns = (times - 1.0) * plain_ns - kMixedPart * costs[kMixed] - position_ns;
  if (room_ns <= 0.0) return 0;
  if (token_ns <= 0.0) return std::nullopt;
  constexpr double kMost = std::numeric_limits<int32_t>::max();
  return static_cast<int32_t>(std::min(room_ns / token_ns, kMost));
}

}  // namespace hayate::sched
