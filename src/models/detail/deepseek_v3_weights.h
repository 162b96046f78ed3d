#pragma once
// One rank's prepared weights of a DeepSeek V3 or V3.2 model: its heads, its experts, its part of
// the feed-forward layers and of the vocabulary. What makes the latents, the queries' low rank and
// the index keys is whole on every rank.

#include <optional>
#include <vector>

#include "models/detail/deepseek_v3_config.h"
#include "models/layers/embedding_table.h"
#include "models/layers/head_shard.h"
#include "models/layers/linear.h"
#include "models/layers/mlp.h"
#include "models/registry.h"
#include "ops/latent_attention/latent_attention.h"
#include "ops/moe/moe.h"

namespace hayate::models {

// V3.2's lightning indexer.
struct TokenIndexer {
  Linear q;             // [Hi · Di, q_rank]
  Linear k;             // [Di, H]
  Buffer k_norm;        // [Di] f32
  Buffer k_norm_bias;   // [Di] f32
  Linear head_weights;  // [Hi, H], exact

  int64_t bytes() const;
};

struct DeepseekV3Attention {
  Linear q_down;   // [q_rank, H]; empty without a low rank
  Buffer q_norm;   // [q_rank]
  Linear q_up;     // [heads of this rank · (Dn + R), q_rank or H]
  Linear kv_down;  // [L + R, H]
  Buffer kv_norm;  // [L]
  ops::LatentProjections projections;
  Linear output;  // [H, heads of this rank · Dv]
  std::optional<TokenIndexer> indexer;

  int64_t bytes() const;
};

struct DeepseekV3Layer {
  Buffer attention_norm, ffn_norm;  // [H] f32
  DeepseekV3Attention attention;
  MlpLayer mlp;                        // of a dense layer
  std::optional<ops::MoeWeights> moe;  // of a sparse one

  int64_t bytes() const;
};

struct DeepseekV3Weights {
  Range heads;         // of Hq
  Range ffn;           // of the dense layers' F
  Range vocab;         // of V
  ops::MoeConfig moe;  // of the sparse layers
  int64_t num_experts = 0;
  int num_dp_ranks = 0;      // whose rows travel to their experts; 0: none do
  EmbeddingTable embedding;  // [V, H]
  std::vector<DeepseekV3Layer> layers;
  Buffer final_norm;  // [H] f32
  Linear head;        // [vocab.size(), H]

  int64_t bytes() const;
};

Result<DeepseekV3Weights> LoadDeepseekV3Weights(const weights::Checkpoint& checkpoint,
                                                const DeepseekV3Config& config,
                                                const LoadOptions& options);

// The layer that predicts a further token: a sparse layer over
// join · [norm(embedding of the token after); norm(what the trunk made of the token)].
struct DeepseekV3Draft {
  Buffer token_norm, state_norm;  // [H]
  Linear join;                    // [H, 2H]
  DeepseekV3Layer layer;
  // Of the layer: its experts lie on the attention group's ranks, wherever the trunk's do.
  ops::MoeConfig moe;
  int64_t num_experts = 0;
  Buffer final_norm;  // [H]

  int64_t bytes() const;
};
// The tensors of layer num_layers; kDataLoss where one is not there.
Result<DeepseekV3Draft> LoadDeepseekV3Draft(const weights::Checkpoint& checkpoint,
                                            const DeepseekV3Config& config,
                                            const LoadOptions& options);

}  // namespace hayate::models
