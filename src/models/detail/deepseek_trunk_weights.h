#pragma once
// One rank's prepared weights of what DeepSeek V4 and V4.1 share: a layer without its compressors,
// and the ends of the trunk.

#include <string>
#include <vector>

#include "models/detail/deepseek_blocks.h"
#include "models/detail/deepseek_trunk_config.h"
#include "models/layers/embedding_table.h"

namespace hayate::models {

// Attention over one latent row per token in a window.
struct WindowAttention {
  Linear q_down;   // [q_rank, H]
  Buffer q_norm;   // [q_rank]
  Linear q_up;     // [heads of this rank × D, q_rank]
  Linear kv;       // [D, H]
  Buffer kv_norm;  // [D]
  Buffer sinks;    // [heads of this rank]
  GroupedOutput output;

  int64_t bytes() const;
};

struct HyperLayer {
  int index = -1;                   // in the trunk, set before loading; −1: a draft block
  Buffer attention_norm, ffn_norm;  // [H]
  HyperWeights attention_hyper, ffn_hyper;
  WindowAttention attention;
  ops::MoeWeights experts;  // without what chooses them

  int64_t bytes() const;
};

// A rank's part of every layer and of the head.
struct TrunkShards {
  Range groups;  // of the output projection
  Range vocab;
  ExpertsShape experts;
};
TrunkShards ShardTrunk(const DeepseekTrunkConfig& config, const LoadOptions& options);

struct TrunkWeights {
  TrunkShards shards;
  ops::MoeConfig moe;        // of every layer
  EmbeddingTable embedding;  // [V, H]
  Buffer final_norm;         // [H]
  Linear head;               // [vocab.size(), H]

  int64_t bytes() const;
};

GroupedOutputShape OutputShapeOf(const DeepseekTrunkConfig& config);
ops::MoeConfig MoeConfigOf(const DeepseekTrunkConfig& config, const ExpertsShape& experts,
                           int32_t experts_per_token);

// "<prefix>.attn_norm" and so on, with the attention and the experts.
Status LoadHyperLayer(VendorTensors& tensors, const DeepseekTrunkConfig& config,
                      const TrunkShards& shards, const std::string& prefix, HyperLayer& layer);
// "embed", "norm" and "head"; `shards` and `moe` are set before.
Status LoadTrunkEnds(VendorTensors& tensors, const DeepseekTrunkConfig& config,
                     TrunkWeights& weights);

}  // namespace hayate::models
