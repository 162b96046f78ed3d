#include "models/detail/held_experts.h"

#include <numeric>

namespace hayate::models {

HeldExperts HeldExpertsOf(const LoadOptions& options, int layer, int32_t num_experts) {
  HeldExperts held;
  if (options.experts.empty()) {
    const Range range = SplitUnits(num_experts, 1, options.rank, options.num_ranks);
    held.ids.resize(static_cast<size_t>(range.size()));
    std::iota(held.ids.begin(), held.ids.end(), static_cast<int32_t>(range.begin));
    held.first = static_cast<int32_t>(range.begin);
    return held;
  }
  const auto ids = options.experts[static_cast<size_t>(layer)].of_rank(options.expert_rank);
  held.ids.assign(ids.begin(), ids.end());
  return held;
}

int64_t NumHeldExperts(const LoadOptions& options, int32_t num_experts) {
  if (!options.experts.empty()) return options.experts[0].per_rank();
  return SplitUnits(num_experts, 1, options.rank, options.num_ranks).size();
}

int NumDpRanks(const LoadOptions& options) {
  return options.experts.empty() ? 0 : options.experts[0].num_ranks() / options.num_ranks;
}

Range SharedFeaturesOf(const LoadOptions& options, int64_t shared_size, int64_t unit) {
  if (!options.experts.empty()) return {0, shared_size};
  return SplitUnits(shared_size, unit, options.rank, options.num_ranks);
}

}  // namespace hayate::models
