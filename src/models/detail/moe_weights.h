#pragma once
// One rank's part of a sparse layer: whole experts, and a range of the shared expert's features.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "models/config.h"
#include "models/detail/tensor_reader.h"
#include "models/layers/head_shard.h"
#include "ops/moe/moe.h"

namespace hayate::models {

struct MoeShard {
  int64_t num_experts = 0;  // in every sparse layer
  int num_dp_ranks = 0;     // whose rows travel; 0: none do
  Range shared;             // of the shared expert's F
};
MoeShard PlanMoe(const MoeSettings& moe, const LoadOptions& options);

// What ops::Moe needs to know of every sparse layer of the model.
ops::MoeConfig MoeConfigOf(const MoeSettings& moe, int64_t hidden_size, const MoeShard& shard);

// What a family calls the parts of a sparse layer.
struct MoeNames {
  const char* gate;
  const char* choice_bias;  // null: the router has none
  // Of the shared expert; null: there is none.
  const char* shared_gate_proj = nullptr;
  const char* shared_up_proj = nullptr;
  const char* shared_down_proj = nullptr;
  const char* shared_gate = nullptr;  // that weighs its output; null: none
};
inline constexpr MoeNames kQwenMoe = {"gate",
                                      nullptr,
                                      "shared_expert.gate_proj",
                                      "shared_expert.up_proj",
                                      "shared_expert.down_proj",
                                      "shared_expert_gate"};
inline constexpr MoeNames kGptOssMoe = {"router", nullptr};
inline constexpr MoeNames kDeepseekMoe = {"gate", "gate.e_score_correction_bias",
                                          "shared_experts.gate_proj", "shared_experts.up_proj",
                                          "shared_experts.down_proj"};
inline constexpr MoeNames kGgufMoe = {"ffn_gate_inp", nullptr,          "ffn_gate_shexp",
                                      "ffn_up_shexp", "ffn_down_shexp", "ffn_gate_inp_shexp"};

// Reads the tensors of `layer` under `prefix` ("model.layers.3.mlp.", "blk.3."). Experts are read
// one at a time, and only those that the rank holds.
Result<ops::MoeWeights> LoadMoe(TensorReader& reader, const MoeSettings& moe, int64_t hidden_size,
                                const MoeNames& names, int layer, const std::string& prefix,
                                const MoeShard& shard);

}  // namespace hayate::models
