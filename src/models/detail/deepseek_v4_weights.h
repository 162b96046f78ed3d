#pragma once
// One rank's prepared weights of a DeepSeek V4 trunk.

#include <optional>
#include <vector>

#include "models/detail/deepseek_trunk_weights.h"
#include "models/detail/deepseek_v4_config.h"
#include "models/layers/latent_compressor.h"

namespace hayate::models {

struct DeepseekV4Layer : HyperLayer {
  std::optional<LatentCompressor> compressor;
  std::optional<LatentCompressor> index_compressor;
  Linear index_q;        // [Hi × Di, q_rank]
  Linear index_weights;  // [Hi, H]

  int64_t bytes() const;
};

struct DeepseekV4Weights : TrunkWeights {
  std::vector<DeepseekV4Layer> layers;
  HyperWeights head_hyper;

  int64_t bytes() const;
};

Result<DeepseekV4Weights> LoadDeepseekV4Weights(const weights::Checkpoint& checkpoint,
                                                const DeepseekV4Config& config,
                                                const LoadOptions& options);

}  // namespace hayate::models
