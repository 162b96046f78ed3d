#pragma once
// One rank's prepared weights of an EAGLE-3 head, as SGLang ("midlayer.…") and vLLM ("layers.0.…")
// name them.

#include <vector>

#include "base/status.h"
#include "models/detail/eagle3_config.h"
#include "models/layers/attention.h"
#include "models/layers/embedding_table.h"
#include "models/layers/mlp.h"
#include "models/registry.h"

namespace hayate::models {

struct Eagle3Weights {
  AttentionShape shape;
  int64_t heads_unit = 1;         // of query heads, which ranks share
  int32_t num_states = 0;         // target layers whose states are joined
  Range fc_rows;                  // of H: this rank's part of what joins them
  Range vocab;                    // of the head's own vocabulary: this rank's rows of `head`
  Linear fc;                      // [fc_rows.size(), num_states · H of the target]
  Buffer token_norm, state_norm;  // [H] f32
  AttentionLayer attention;       // of [norm(embedding); norm(state)], 2H wide
  Buffer mlp_norm;                // [H] f32
  MlpLayer mlp;
  Buffer final_norm;         // [H] f32
  Linear head;               // [vocab.size(), H]
  EmbeddingTable embedding;  // [V, H], where the target's has another width; else empty
  // By id of the head's vocabulary the target's id, all different; empty: they are the same.
  std::vector<int32_t> target_ids;

  int64_t bytes() const;
};

Result<Eagle3Weights> LoadEagle3Weights(const weights::Checkpoint& head, const Eagle3Config& config,
                                        const LoadOptions& options, const ModelFacts& target);

}  // namespace hayate::models
