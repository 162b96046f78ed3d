#pragma once
// Which experts rows are sent to, at random, and what that means for the ranks: the counts that
// comm::TokenExchange would give for the same choices.

#include <cstdint>
#include <span>
#include <vector>

#include "base/rng.h"
#include "base/status.h"
#include "comm/expert_placement.h"

namespace hayate::bench {

// How likely each expert of each layer is.
class ExpertRouting {
 public:
  // The i-th most popular expert has weight i^-exponent; which one that is differs by layer.
  static ExpertRouting Zipf(int num_layers, int num_experts, double exponent, uint64_t seed);
  // By recorded counts [layers][E]. kInvalidArgument where a layer has fewer than top_k experts
  // with a count.
  static Result<ExpertRouting> Recorded(std::span<const std::vector<int64_t>> counts, int top_k);

  int num_layers() const { return static_cast<int>(cumulative_.size()); }
  int num_experts() const { return static_cast<int>(cumulative_[0].size()); }
  // Distinct experts of a layer, one after the other by their weights.
  void Choose(int layer, Rng& rng, std::span<int32_t> chosen) const;

 private:
  std::vector<std::vector<double>> cumulative_;  // [layers][E], the last is 1
};

// Of one layer and step, per rank.
struct LayerTraffic {
  std::vector<int64_t> rows;                           // that its experts compute, one a choice
  std::vector<int64_t> experts_touched;                // of its experts
  std::vector<std::vector<int32_t>> expert_rows;       // of `rows`, by the rank's places
  std::vector<int64_t> dispatched, dispatch_received;  // rows to and from other ranks
  std::vector<int64_t> combined, combine_sent;         // rows back to it, and back from it
};
// chosen[r]: logical experts of rank r's rows, [n_r, top_k].
LayerTraffic CountTraffic(std::span<const std::vector<int32_t>> chosen, int top_k,
                          const comm::ExpertPlacement& placement);

}  // namespace hayate::bench
