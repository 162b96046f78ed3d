#include "spec/draft_lengths.h"

#include <algorithm>

#include "base/check.h"

namespace hayate::spec {

int32_t DraftLengths::Choose(const StepCost& cost, const Step& step,
                             std::span<const std::span<const float>> survival,
                             std::span<int32_t> lengths) {
  CHECK_EQ(survival.size(), lengths.size());
  drafts_.clear();
  for (size_t r = 0; r < survival.size(); ++r) {
    lengths[r] = 0;
    for (const float chance : survival[r]) drafts_.emplace_back(chance, static_cast<int32_t>(r));
  }
  // Equal chances of one row keep their order, so that what is taken is a prefix.
  std::ranges::stable_sort(drafts_, [](const auto& a, const auto& b) { return a.first > b.first; });
  const auto limit = std::min(drafts_.size(), static_cast<size_t>(std::max(0, step.max_drafts)));
  double tokens = step.num_rows;
  double best_rate = tokens / cost.Ns(step.num_tokens);
  size_t best = 0;
  for (size_t m = 1; m <= limit; ++m) {
    tokens += static_cast<double>(drafts_[m - 1].first);
    const double rate = tokens / cost.MostNs(step.num_tokens + static_cast<int32_t>(m));
    if (rate > best_rate) {
      best_rate = rate;
      best = m;
    }
  }
  for (size_t i = 0; i < best; ++i) ++lengths[static_cast<size_t>(drafts_[i].second)];
  return static_cast<int32_t>(best);
}

}  // namespace hayate::spec
