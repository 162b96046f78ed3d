#pragma once
// What a DeepSeek V4 trunk is made of, read from the vendor's config.json.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "ops/rope/rope.h"
#include "weights/checkpoint.h"

namespace hayate::models {

struct DeepseekV4Config {
  std::string architecture;
  int32_t hidden_size = 0;  // H
  int32_t num_layers = 0;
  int32_t vocab_size = 0;  // V
  int32_t trained_context = 0;
  float norm_eps = 1e-6f;

  int32_t num_heads = 0;  // Hq; all share one latent
  int32_t head_dim = 0;   // D, of which the last `rotary_dim` turn
  int32_t rotary_dim = 0;
  int32_t q_rank = 0;
  int32_t o_rank = 0;    // of one group of the output projection
  int32_t o_groups = 0;  // divides num_heads
  int32_t window = 0;    // W, counting the token's own position

  // Per layer tokens per compressed entry; 0: the window alone. kOverlapRatio overlaps its blocks
  // and has an indexer, any other ratio pools plainly and attends to every entry.
  std::vector<int32_t> ratios;  // [num_layers]
  int32_t index_heads = 0;
  int32_t index_dim = 0;
  int32_t index_top_k = 0;
  ops::RopeConfig window_rope;      // of layers of ratio 0
  ops::RopeConfig compressed_rope;  // of all others, their queries and window rows included

  int32_t hyper_iterations = 0;
  float hyper_eps = 1e-6f;

  int32_t num_experts = 0;  // E
  int32_t experts_per_token = 0;
  int32_t expert_ffn = 0;  // of one expert and of the shared one
  int32_t num_hash_layers = 0;
  float route_scale = 1.0f;
  float swiglu_limit = 0.0f;

  std::vector<int32_t> eos_ids;

  static constexpr int32_t kOverlapRatio = 4;
  bool has_indexer(int layer) const { return ratios[static_cast<size_t>(layer)] == kOverlapRatio; }
  int32_t ratio(int layer) const { return ratios[static_cast<size_t>(layer)]; }
};

// kUnsupported: a setting that would change the maths. kDataLoss: a field that is missing, of a
// wrong type, out of range or in contradiction to another. Both name the field.
Result<DeepseekV4Config> ReadDeepseekV4Config(const weights::Checkpoint& checkpoint);

}  // namespace hayate::models
