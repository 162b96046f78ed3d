#pragma once
// One rank's prepared weights of a DeepSeek V4 trunk.

#include <optional>
#include <string>
#include <vector>

#include "models/detail/deepseek_blocks.h"
#include "models/detail/deepseek_v4_config.h"
#include "models/layers/latent_compressor.h"

namespace hayate::models {

struct DeepseekV4Attention {
  Linear q_down;   // [q_rank, H]
  Buffer q_norm;   // [q_rank]
  Linear q_up;     // [heads of this rank × D, q_rank]
  Linear kv;       // [D, H]
  Buffer kv_norm;  // [D]
  Buffer sinks;    // [heads of this rank]
  GroupedOutput output;
  std::optional<LatentCompressor> compressor;
  std::optional<LatentCompressor> index_compressor;
  Linear index_q;        // [Hi × Di, q_rank]
  Linear index_weights;  // [Hi, H]
};

struct DeepseekV4Layer {
  Buffer attention_norm, ffn_norm;  // [H]
  HyperWeights attention_hyper, ffn_hyper;
  DeepseekV4Attention attention;
  ops::MoeWeights experts;
};

struct DeepseekV4Weights {
  Range groups;               // of the output projection, of this rank
  Range vocab;                // this rank's rows of the head
  ops::MoeConfig moe;         // of every layer
  ConstTensorView embedding;  // [V, H] in the mapped file
  std::vector<DeepseekV4Layer> layers;
  HyperWeights head_hyper;
  Buffer final_norm;  // [H]
  Linear head;        // [vocab.size(), H]

  int64_t bytes() const;
};

GroupedOutputShape OutputShapeOf(const DeepseekV4Config& config);

Result<DeepseekV4Weights> LoadDeepseekV4Weights(const weights::Checkpoint& checkpoint,
                                                const DeepseekV4Config& config,
                                                const LoadOptions& options);

}  // namespace hayate::models
