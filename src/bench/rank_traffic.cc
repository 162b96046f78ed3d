#include "bench/rank_traffic.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace hayate::bench {
namespace {

// Running sums, scaled to end at 1.
std::vector<double> Cumulative(std::vector<double> weights) {
  std::partial_sum(weights.begin(), weights.end(), weights.begin());
  const double total = weights.back();
  for (double& value : weights) value /= total;
  weights.back() = 1.0;
  return weights;
}

}  // namespace

ExpertRouting ExpertRouting::Zipf(int num_layers, int num_experts, double exponent, uint64_t seed) {
  ExpertRouting routing;
  Rng rng(seed);
  for (int layer = 0; layer < num_layers; ++layer) {
    std::vector<double> weights(static_cast<size_t>(num_experts));
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = std::pow(static_cast<double>(i + 1), -exponent);
    }
    for (size_t i = weights.size() - 1; i > 0; --i) {
      std::swap(weights[i], weights[rng.Below(static_cast<uint32_t>(i + 1))]);
    }
    routing.cumulative_.push_back(Cumulative(std::move(weights)));
  }
  return routing;
}

Result<ExpertRouting> ExpertRouting::Recorded(std::span<const std::vector<int64_t>> counts,
                                              int top_k) {
  ExpertRouting routing;
  for (const std::vector<int64_t>& layer : counts) {
    if (layer.empty()) continue;  // without experts
    const auto used = std::ranges::count_if(layer, [](int64_t count) { return count > 0; });
    if (used < top_k ||
        (!routing.cumulative_.empty() && layer.size() != routing.cumulative_[0].size())) {
      return Error(ErrorCode::kInvalidArgument,
                   "layer {} of the recorded counts: {} of {} experts were used; {} are chosen",
                   &layer - counts.data(), used, layer.size(), top_k);
    }
    routing.cumulative_.push_back(Cumulative({layer.begin(), layer.end()}));
  }
  if (routing.cumulative_.empty()) {
    return Error(ErrorCode::kInvalidArgument, "the recorded counts have no layer with experts");
  }
  return routing;
}

void ExpertRouting::Choose(int layer, Rng& rng, std::span<int32_t> chosen) const {
  const std::vector<double>& cumulative = cumulative_[static_cast<size_t>(layer)];
  for (size_t j = 0; j < chosen.size();) {
    const double at = static_cast<double>(rng.NextU64() >> 11) * 0x1p-53;
    const auto expert = static_cast<int32_t>(
        std::upper_bound(cumulative.begin(), cumulative.end(), at) - cumulative.begin());
    // One that was drawn already is drawn again: the others keep their proportions.
    if (std::find(chosen.begin(), chosen.begin() + static_cast<ptrdiff_t>(j), expert) ==
        chosen.begin() + static_cast<ptrdiff_t>(j)) {
      chosen[j++] = expert;
    }
  }
}

LayerTraffic CountTraffic(std::span<const std::vector<int32_t>> chosen, int top_k,
                          const comm::ExpertPlacement& placement) {
  const auto ranks = static_cast<size_t>(placement.num_ranks());
  LayerTraffic traffic;
  for (auto* counts : {&traffic.rows, &traffic.experts_touched, &traffic.dispatched,
                       &traffic.dispatch_received, &traffic.combined, &traffic.combine_sent}) {
    counts->assign(ranks, 0);
  }
  traffic.expert_rows.assign(ranks,
                             std::vector<int32_t>(static_cast<size_t>(placement.per_rank()), 0));
  std::vector<int> reached(static_cast<size_t>(top_k));  // ranks that got the row already
  for (size_t from = 0; from < ranks; ++from) {
    const auto num_rows = std::ssize(chosen[from]) / top_k;
    for (int64_t row = 0; row < num_rows; ++row) {
      int num_reached = 0;
      for (int j = 0; j < top_k; ++j) {
        const int32_t logical = chosen[from][static_cast<size_t>(row * top_k + j)];
        const int32_t physical = placement.ReplicaFor(logical, row + static_cast<int64_t>(from));
        const int to = placement.rank_of(physical);
        const auto dest = static_cast<size_t>(to);
        ++traffic.rows[dest];
        const auto place = static_cast<size_t>(placement.place_of(physical));
        if (traffic.expert_rows[dest][place]++ == 0) ++traffic.experts_touched[dest];
        if (dest == from) continue;
        ++traffic.combined[from];
        ++traffic.combine_sent[dest];
        const auto end = reached.begin() + num_reached;
        if (std::find(reached.begin(), end, to) != end) continue;
        reached[static_cast<size_t>(num_reached++)] = to;
        ++traffic.dispatched[from];
        ++traffic.dispatch_received[dest];
      }
    }
  }
  return traffic;
}

}  // namespace hayate::bench
