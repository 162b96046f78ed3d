#pragma once
// Times sums over the GPUs of this process, as a step of a tensor-parallel model makes them.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace hayate::bench {

struct AllReduceResult {
  int64_t bytes = 0;  // of bf16 on every rank
  double us = 0.0;    // of a sum, of the slowest rank, median of the rounds
};

// GPUs 0 … num_ranks − 1, a thread each; sums are recorded in graphs and replayed. `sizes` are
// multiples of 16. kUnsupported where the GPUs do not reach each other's memory.
Result<std::vector<AllReduceResult>> TimeAllReduces(int num_ranks, std::span<const int64_t> sizes);

std::string ToJson(int num_ranks, std::span<const AllReduceResult> results);

}  // namespace hayate::bench
