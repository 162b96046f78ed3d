#pragma once
// How the ranks of a test's server share its model.

#include <cstdint>
#include <vector>

#include "tensor/device.h"

namespace hayate::exec::testing {

struct Layout {
  int num_ranks = 1;
  int dp_size = 1;
  int ep_size = 0;
  int num_redundant = 0;
  int64_t rebalance_interval = 0;
  double max_balance = 1.0;
  std::vector<std::vector<int64_t>> logical_count = {};  // that experts are placed by
  // CUDA: where there are fewer GPUs than ranks, all on GPU 0.
  DeviceKind device = DeviceKind::kCpu;
};

// On which experts of a mixture move while it serves; copies make their number divide.
inline std::vector<Layout> LayoutsThatMove(int32_t num_experts) {
  const auto redundant = [&](int ranks) { return ranks - 1 - (num_experts - 1) % ranks + ranks; };
  return {{.num_ranks = 2, .dp_size = 2, .num_redundant = redundant(2), .rebalance_interval = 3},
          {.num_ranks = 4, .dp_size = 4, .num_redundant = redundant(4), .rebalance_interval = 1},
          {.num_ranks = 4, .dp_size = 2, .num_redundant = redundant(4), .rebalance_interval = 4},
          {.num_ranks = 2, .ep_size = 2, .num_redundant = redundant(2), .rebalance_interval = 5}};
}

}  // namespace hayate::exec::testing
