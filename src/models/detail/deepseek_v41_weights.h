#pragma once
// One rank's prepared weights of a DeepSeek V4.1 trunk.

#include <optional>
#include <vector>

#include "models/detail/deepseek_blocks.h"
#include "models/detail/deepseek_v41_config.h"
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

struct DeepseekV41Attention {
  Linear q_down;   // [q_rank, H]
  Buffer q_norm;   // [q_rank]
  Linear q_up;     // [heads of this rank × D, q_rank]
  Linear kv;       // [D, H]
  Buffer kv_norm;  // [D]
  Buffer sinks;    // [heads of this rank]
  GroupedOutput output;
  std::optional<EntrySource> source;
  Linear index_q;        // [Hi × Di, q_rank]; layers that select
  Linear index_weights;  // [Hi, H]

  int64_t bytes() const;
};

struct EngramWeights {
  ConstTensorView table;      // [rows, width] E4M3, in the mapped file
  ConstTensorView scales;     // [rows, width / 32]
  Linear kv;                  // [5H, rows per token × width]
  Buffer q_weight, k_weight;  // [4, H]

  int64_t bytes() const;
};

struct DeepseekV41Layer {
  Buffer attention_norm, ffn_norm;  // [H]
  HyperWeights attention_hyper, ffn_hyper;
  DeepseekV41Attention attention;
  ops::MoeWeights experts;
  std::optional<EngramWeights> engram;
};

struct DeepseekV41Weights {
  Range groups;                           // of the output projection, of this rank
  Range vocab;                            // this rank's rows of the head
  ops::MoeConfig moe;                     // of every layer
  ConstTensorView embedding;              // [V, H] in the mapped file
  std::vector<int32_t> engram_token_map;  // [V] compressed ids; empty without Engrams
  std::vector<DeepseekV41Layer> layers;
  Buffer final_norm;  // [H]
  Linear head;        // [vocab.size(), H]

  int64_t bytes() const;
};

GroupedOutputShape OutputShapeOf(const DeepseekV41Config& config);

Result<DeepseekV41Weights> LoadDeepseekV41Weights(const weights::Checkpoint& checkpoint,
                                                  const DeepseekV41Config& config,
                                                  const LoadOptions& options);

}  // namespace hayate::models
