#pragma once
// What a step of a large mixture costs a rank under expert parallelism, in bytes and operations:
// the shapes of models and the rates of a device, for the simulation of many ranks.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hayate::bench {

// One layer is like the other but for its cache, so sums over layers are given where they differ.
struct RankModel {
  std::string name;
  int32_t num_layers = 0;
  int32_t hidden_size = 0;  // H
  int32_t num_experts = 0;  // E, of every layer
  int32_t top_k = 0;        // K
  int32_t expert_size = 0;  // F
  double expert_bytes = 0;  // of one routed expert with its scales
  double dense_params = 0;  // of a layer beside the routed experts; a byte each
  double fixed_bytes = 0;   // head: read once a step
  // Cache that one sequence's token reads in all layers together: what does not grow, and what
  // grows with a token of context.
  double cache_bytes = 0;
  double cache_bytes_per_token = 0;

  // Of a value on its way to an expert's rank: fp8 with an f32 scale for 128 of them. And back:
  // bf16.
  double dispatch_value_bytes = 1.0 + 4.0 / 128;
  double combine_value_bytes = 2.0;

  double dispatch_row_bytes() const { return hidden_size * dispatch_value_bytes; }
  double combine_row_bytes() const { return hidden_size * combine_value_bytes; }
  double flops_per_expert_row() const { return 6.0 * hidden_size * expert_size; }
  double flops_per_dense_row() const { return 2.0 * dense_params; }
};

// "v4-flash" or "v4.1-flash".
Result<RankModel> FindRankModel(std::string_view name);

// What one expert takes for its rows, all of it.
struct ExpertCost {
  int32_t rows = 0;
  double us = 0;
};

// Rates of one rank's device.
struct RankRates {
  double memory_gb_s = 4300;  // measured on an H200, and so below
  double tflop_s = 1450;      // fp8 products
  double link_gb_s = 370;     // to other ranks, each direction
  double exchange_us = 15;    // of one dispatch or combine before its first byte
  // Measured, in place of the first two for experts; rows ≥ 1 and rising. Straight lines between
  // them and beyond the last.
  std::vector<ExpertCost> expert_costs = {};

  double MemoryUs(double bytes) const { return bytes / (memory_gb_s * 1e3); }
  double ComputeUs(double flops) const { return flops / (tflop_s * 1e6); }
  double ExpertUs(int32_t rows) const;  // with expert_costs
  double LinkUs(double bytes) const { return bytes / (link_gb_s * 1e3); }
};

}  // namespace hayate::bench
