#pragma once
// One rank's part of a sparse layer: whole experts, and a range of the shared expert's features.

#include "base/status.h"
#include "models/config.h"
#include "models/detail/tensor_reader.h"
#include "models/layers/head_shard.h"
#include "ops/moe/moe.h"

namespace hayate::models {

struct MoeShard {
  Range experts;  // of E
  Range shared;   // of the shared expert's F
};
MoeShard PlanMoe(const MoeSettings& moe, int rank, int num_ranks);

// What ops::Moe needs to know of every sparse layer of the model.
ops::MoeConfig MoeConfigOf(const MoeSettings& moe, int64_t hidden_size, const MoeShard& shard);

// Reads layer `layer`. Experts are read one at a time, and only those of the shard.
Result<ops::MoeWeights> LoadMoe(TensorReader& reader, const ModelConfig& config, int layer,
                                const MoeShard& shard);

}  // namespace hayate::models
