#pragma once
// What a DeepSeek V4.1 trunk is made of, read from the vendor's config.json ("text_config").

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "ops/engram/engram.h"
#include "ops/rope/rope.h"
#include "weights/checkpoint.h"

namespace hayate::models {

struct DeepseekV41Config {
  std::string architecture;
  int32_t hidden_size = 0;  // H
  int32_t num_layers = 0;
  int32_t vocab_size = 0;  // V
  int32_t trained_context = 0;
  float norm_eps = 1e-20f;

  int32_t num_heads = 0;  // Hq; all share one latent
  int32_t head_dim = 0;   // D, of which the last `rotary_dim` turn
  int32_t rotary_dim = 0;
  int32_t q_rank = 0;
  int32_t o_rank = 0;    // of one group of the output projection
  int32_t o_groups = 0;  // divides num_heads
  int32_t window = 0;    // W, counting the token's own position

  // Tokens per entry that a layer attends to; 0: the window alone.
  std::vector<int32_t> ratios;  // [num_layers]
  // Which layer's entries and index keys, and which layer's selection a layer reads; −1 where the
  // ratio is 0.
  std::vector<int32_t> kv_sources, index_sources;  // [num_layers]
  int32_t index_heads = 0;
  int32_t index_dim = 0;
  int32_t index_top_k = 0;
  int32_t candidate_source = -1;  // later selections are made from this layer's candidates
  int32_t candidate_blocks = 0;
  int32_t candidate_block_size = 0;
  ops::RopeConfig window_rope;      // of layers of ratio 0
  ops::RopeConfig compressed_rope;  // of all others

  int32_t hyper_iterations = 0;
  float hyper_eps = 1e-6f;

  int32_t num_experts = 0;  // E
  int32_t experts_per_token = 0;
  int32_t expert_ffn = 0;  // of one expert and of the shared one
  float route_scale = 1.0f;
  float swiglu_limit = 0.0f;

  std::vector<ops::EngramHash> engrams;  // of engram_layers, in their order
  std::vector<int32_t> engram_layers;
  int32_t engram_width = 0;  // of a table row
  int32_t engram_padding_id = 0;
  int32_t engram_vocab = 0;  // compressed ids

  std::vector<int32_t> eos_ids;

  int32_t ratio(int layer) const { return ratios[static_cast<size_t>(layer)]; }
  int32_t kv_source(int layer) const { return kv_sources[static_cast<size_t>(layer)]; }
  bool makes_entries(int layer) const { return kv_source(layer) == layer; }
  bool selects(int layer) const { return index_sources[static_cast<size_t>(layer)] == layer; }
  int engram_of(int layer) const;  // index into engrams, or −1
};

// kUnsupported: a setting that would change the maths. kDataLoss: a field that is missing, of a
// wrong type, out of range or in contradiction to another. Both name the field.
Result<DeepseekV41Config> ReadDeepseekV41Config(const weights::Checkpoint& checkpoint);

}  // namespace hayate::models
