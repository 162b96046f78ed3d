#pragma once
// What a decoder with grouped-query attention is made of, read from a checkpoint: config.json
// (Hugging Face) or GGUF metadata. The families differ in data only: Llama 1–3, SmolLM2 and
// Mistral; Qwen2 (biases on q, k and v); Qwen3 (RMS norms on the heads of q and k); their mixtures
// of experts; GPT-OSS (sinks, windows, biases everywhere, clamped experts).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "ops/activation/clamped_swiglu.h"
#include "ops/moe/router.h"
#include "ops/rope/rope.h"
#include "weights/checkpoint.h"

namespace hayate::models {

// Weights of an FP8 checkpoint that share a scale; 0 rows: the checkpoint has no such scales.
struct Fp8Block {
  int32_t rows = 0;
  int32_t cols = 0;
};

// The sparse layers of a decoder.
struct MoeSettings {
  ops::RouterConfig router;
  ops::SwiGluForm form;
  int32_t expert_size = 0;  // F of a routed expert
  int32_t shared_size = 0;  // F of the shared expert; 0: none
  bool shared_gate = false;
  bool router_bias = false;
  bool expert_bias = false;
  std::vector<bool> sparse;  // [num_layers]: which layers are
};

struct ModelConfig {
  std::string architecture;  // as the checkpoint spells it
  int32_t hidden_size = 0;   // H
  int32_t num_layers = 0;
  int32_t num_heads = 0;     // Hq
  int32_t num_kv_heads = 0;  // Hkv, divides num_heads
  int32_t head_dim = 0;      // D
  int32_t ffn_size = 0;      // F
  int32_t vocab_size = 0;    // V
  int32_t trained_context = 0;
  float norm_eps = 1e-5f;
  ops::RopeConfig rope;

  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's output projection
  bool mlp_bias = false;
  bool qk_norm = false;
  bool tied_head = false;  // the head is the embedding table
  bool attention_sinks = false;
  Fp8Block fp8_block;
  std::optional<MoeSettings> moe;

  // Per layer the attention window in tokens, counting the token's own; 0: none.
  std::vector<int32_t> windows;  // [num_layers]
  std::vector<int32_t> eos_ids;

  bool is_sparse(int layer) const { return moe && moe->sparse[static_cast<size_t>(layer)]; }
  int32_t group_size() const { return num_heads / num_kv_heads; }
};

// kUnsupported: an architecture or a setting without an implementation. kDataLoss: a field that is
// missing, of a wrong type, out of range or in contradiction to another. Both name the field.
Result<ModelConfig> ReadModelConfig(const weights::Checkpoint& checkpoint);

}  // namespace hayate::models
