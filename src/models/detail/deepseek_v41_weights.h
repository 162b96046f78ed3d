#pragma once
// One rank's prepared weights of a DeepSeek V4.1 trunk.

#include <optional>
#include <vector>

#include "models/detail/deepseek_trunk_weights.h"
#include "models/detail/deepseek_v41_config.h"
#include "models/layers/embedding_table.h"
#include "models/layers/latent_compressor.h"

namespace hayate::models {

// What a source layer makes its entries and their index keys of.
struct EntrySource {
  LatentCompressor compressor;  // ratio > 1
  Linear kv;                    // ratio 1: [D, H], every token is an entry
  Buffer norm;                  // ratio 1: [D]
  Linear key;                   // [Di, D], of the latents
  Buffer key_norm;              // [Di]

  int64_t bytes() const;
};

struct EngramWeights {
  EmbeddingTable table;       // [rows, width] E4M3, host memory
  EmbeddingTable scales;      // [rows, width / 32]
  Buffer hash;                // ops::PlaceEngramHash
  Linear kv;                  // [5H, rows per token × width]
  Buffer q_weight, k_weight;  // [4, H]

  int64_t bytes() const;
};

struct DeepseekV41Layer : HyperLayer {
  std::optional<EntrySource> source;
  Linear index_q;        // [Hi × Di, q_rank]; layers that select
  Linear index_weights;  // [Hi, H]
  std::optional<EngramWeights> engram;

  int64_t bytes() const;
};

struct DeepseekV41Weights : TrunkWeights {
  Buffer engram_token_map;     // [V] compressed ids, int32; empty without Engrams
  int32_t engram_padding = 0;  // the compressed id before a sequence's start
  std::vector<DeepseekV41Layer> layers;

  int64_t bytes() const;
};

Result<DeepseekV41Weights> LoadDeepseekV41Weights(const weights::Checkpoint& checkpoint,
                                                  const DeepseekV41Config& config,
                                                  const LoadOptions& options);

}  // namespace hayate::models
