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

}  // namespace hayate::exec::testing
