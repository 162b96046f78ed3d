#pragma once
// The plan of many ranks on paper: DP attention with experts over all ranks (DEP), a decode step of
// pinned composition. Rows choose experts at random, and go where comm::ExpertPlacement and the
// rule of models/layers/moe.h send them; what each rank then reads, computes and exchanges is
// counted and timed by the device's rates. Times are floors of that model: the fullest rank sets
// the pace of a layer, kernels reach their rates, the host costs nothing.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/rank_shapes.h"
#include "bench/rank_traffic.h"

namespace hayate::bench {

struct RankStep {
  int num_ranks = 64;
  int32_t sequences_per_rank = 64;
  int32_t tokens_per_sequence = 4;      // a verified token and its drafts
  double accepted_per_sequence = 3.25;  // tokens that a step brings
  int64_t context = 131072;             // tokens in each sequence's cache
};

struct RankSimulationOptions {
  RankModel model;
  RankRates rates;
  RankStep step;
  int num_redundant = 0;
  bool balanced = true;    // experts placed by the counts of other steps; otherwise in order
  int recorded_steps = 8;  // those steps
  int simulated_steps = 2;
  uint64_t seed = 1;
};

struct RankSimulation {
  // Means over layers and steps.
  double imbalance = 0;        // rows of the fullest rank ÷ mean
  double experts_touched = 0;  // on the rank that touches the most
  double dispatch_mb = 0;      // a rank sends in a step, all layers
  double combine_mb = 0;       // and gets back
  double attention_us = 0;     // a layer, beside what the experts do
  double experts_us = 0;       // a layer, the slowest rank
  double exchange_us = 0;      // a layer, both ways, the slowest rank
  double step_ms = 0;
  double step_ms_two_batches = 0;  // two halves of the batch in turns: one computes, one travels
  double tokens_per_s = 0;         // of one rank, and so below
  double tokens_per_s_two_batches = 0;
};

// kInvalidArgument: the experts do not divide over the ranks, or the routing is of another shape.
Result<RankSimulation> SimulateRanks(const RankSimulationOptions& options,
                                     const ExpertRouting& routing);

// The pieces of one layer: what its slowest rank takes of each.
struct LayerTimes {
  double attention_us = 0, dispatch_us = 0, experts_us = 0, combine_us = 0;
  double total() const { return attention_us + dispatch_us + experts_us + combine_us; }
};
// All but attention_us.
LayerTimes TimeExperts(const RankModel& model, const RankRates& rates, const LayerTraffic& traffic);

// Two chains of pieces of work in turns on a compute and a link resource: µs until both are done.
double OverlapTwoBatches(const std::vector<LayerTimes>& first,
                         const std::vector<LayerTimes>& second);

}  // namespace hayate::bench
