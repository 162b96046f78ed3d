#pragma once
// The simulation's times against those of CPU ranks that run: one sparse layer of random weights,
// its rows over the real exchange. What the exchange and an expert of so many rows take is measured
// on even loads; skewed ones are then foretold and measured. Ranks beyond the machine's cores share
// them in turns, and so they are foretold. Wants a machine without other work.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace hayate::bench {

struct RankMeasurementOptions {
  int num_ranks = 2;
  double zipf = 1.0;
  std::vector<int32_t> rows = {32, 128, 512};  // of a rank
  int repeats = 40;
  int32_t most_even_rows = 64;  // of an expert, in the even loads
  uint64_t seed = 1;
};

struct RankMeasurement {
  int32_t rows = 0;
  std::string placement;  // "in order", "redundant"
  double imbalance = 0;   // rows of the fullest rank ÷ mean
  double foretold_us = 0;
  double measured_us = 0;  // median
};

// kInvalidArgument: ranks that the layer's 32 experts do not divide over; no rows.
Result<std::vector<RankMeasurement>> MeasureRanks(const RankMeasurementOptions& options);

}  // namespace hayate::bench
