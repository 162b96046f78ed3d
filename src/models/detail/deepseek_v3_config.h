#pragma once
// What a DeepSeek V3 (V3.1, R1) or V3.2 model is made of, read from its config.json.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "models/config.h"
#include "ops/rope/rope.h"
#include "weights/checkpoint.h"

namespace hayate::models {

// V3.2: which tokens a token attends to.
struct TokenIndexerSettings {
  int32_t num_heads = 0;  // Hi
  int32_t head_dim = 0;   // Di
  int32_t top_k = 0;
};

struct DeepseekV3Config {
  std::string architecture;
  int32_t hidden_size = 0;  // H
  int32_t num_layers = 0;
  int32_t num_heads = 0;   // Hq
  int32_t q_rank = 0;      // of the query's down projection; 0: queries come from x directly
  int32_t latent_dim = 0;  // L
  int32_t nope_dim = 0;    // Dn
  int32_t rope_dim = 0;    // R
  int32_t value_dim = 0;   // Dv
  int32_t ffn_size = 0;    // of the dense layers
  int32_t vocab_size = 0;
  int32_t trained_context = 0;
  float norm_eps = 1e-6f;
  float softmax_scale = 0.0f;
  ops::RopeConfig rope;  // of R features
  bool tied_head = false;
  Fp8Block fp8_block;
  MoeSettings moe;  // the sparse layers and their experts
  std::optional<TokenIndexerSettings> indexer;
  // Layers behind the last one that predict further tokens; the first can be a drafter.
  int32_t num_draft_layers = 0;
  std::vector<int32_t> eos_ids;
};

// Whether the architecture is of this family.
bool IsDeepseekV3(std::string_view architecture);

// kUnsupported and kDataLoss as ReadModelConfig.
Result<DeepseekV3Config> ReadDeepseekV3Config(const weights::Checkpoint& checkpoint);

}  // namespace hayate::models
