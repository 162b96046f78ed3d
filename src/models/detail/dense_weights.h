#pragma once
// One rank's prepared weights of a dense decoder.

#include <optional>
#include <vector>

#include "base/status.h"
#include "models/config.h"
#include "models/detail/moe_weights.h"
#include "models/layers/attention.h"
#include "models/layers/embedding_table.h"
#include "models/layers/mlp.h"
#include "models/registry.h"

namespace hayate::models {

struct DenseLayer {
  Buffer attention_norm;  // [H] f32
  AttentionLayer attention;
  Buffer mlp_norm;                     // [H] f32
  MlpLayer mlp;                        // of a dense layer
  std::optional<ops::MoeWeights> moe;  // of a sparse one
};

struct DenseWeights {
  AttentionShape attention;
  Range ffn;                 // of F
  Range vocab;               // of V: this rank's rows of the head
  ops::MoeConfig moe;        // of the sparse layers
  int64_t num_experts = 0;   // of this rank, in a sparse layer
  int num_dp_ranks = 0;      // whose rows travel to their experts; 0: none do
  EmbeddingTable embedding;  // [V, H]
  std::vector<DenseLayer> layers;
  Buffer final_norm;  // [H] f32
  Linear head;        // [vocab.size(), H]

  int64_t bytes() const;
};

// Which heads a rank holds: cut so that no block of the output projections' types is cut.
Result<HeadShard> PlanHeads(const weights::Checkpoint& checkpoint, const ModelConfig& config,
                            int rank, int num_ranks);

Result<DenseWeights> LoadDenseWeights(const weights::Checkpoint& checkpoint,
                                      const ModelConfig& config, const LoadOptions& options);

}  // namespace hayate::models
