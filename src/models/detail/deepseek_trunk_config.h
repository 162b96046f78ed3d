#pragma once
// What the configs of DeepSeek V4 and V4.1 share: the same fields, at the top of config.json or
// under "text_config".

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "ops/moe/moe.h"
#include "ops/rope/rope.h"
#include "weights/checkpoint.h"

namespace hayate::models {

// Which coefficients collapse the streams into a sublayer's input.
enum class StreamEntry : uint8_t {
  kOwn,      // V4: the sublayer's own
  kEarlier,  // V4.1: those of the sublayer before
};

struct DeepseekTrunkConfig {
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
  int32_t o_rank = 0;       // of one group of the output projection
  int32_t o_groups = 0;     // divides num_heads
  int32_t window = 0;       // W, counting the token's own position
  bool query_norm = false;  // an RMS norm without weights on every head of q

  // Per layer tokens per compressed entry; 0: the window alone.
  std::vector<int32_t> ratios;  // [num_layers]
  int32_t index_heads = 0;
  int32_t index_dim = 0;
  int32_t index_top_k = 0;
  ops::RopeConfig window_rope;      // of layers of ratio 0
  ops::RopeConfig compressed_rope;  // of all others, their queries and window rows included

  StreamEntry stream_entry = StreamEntry::kOwn;
  int32_t hyper_iterations = 0;
  float hyper_eps = 1e-6f;

  int32_t num_experts = 0;  // E
  int32_t experts_per_token = 0;
  int32_t expert_ffn = 0;  // of one expert and of the shared one
  float route_scale = 1.0f;
  float route_epsilon = 0.0f;  // added to the sum that weights are divided by
  float swiglu_limit = 0.0f;
  bool fp8_experts = false;  // the routed ones, declared to be E4M3 and not E2M1; tensors decide
  int32_t tile = 0;          // rows and columns of an E4M3 matrix that share a scale

  std::vector<int32_t> eos_ids;

  int32_t ratio(int layer) const { return ratios[static_cast<size_t>(layer)]; }
  int32_t group_heads() const { return num_heads / o_groups; }
};

// Fields of the trunk, each under "<prefix><name>"; `ratios` and the family's own settings are the
// caller's, who has set the tile. kUnsupported: a setting that would change the maths. kDataLoss: a
// field that is missing, of a wrong type, out of range or in contradiction to another. Both name
// the field.
Status ReadTrunkConfig(const weights::Checkpoint& checkpoint, std::string_view prefix,
                       DeepseekTrunkConfig& config);

// `E` experts of which a token takes `k`, as ops::Moe wants them; kDataLoss where it cannot.
Status CheckTrunkRouter(int32_t num_experts, int32_t experts_per_token);

// Ratios of a trunk are at most this; the state of an unfinished block is bounded by it.
inline constexpr int64_t kMaxCompressRatio = 1024;

// "<prefix>compress_ratios": one per trunk layer, then one per draft block, which must be 0.
// kDataLoss where there are too few or one is out of [0, kMaxCompressRatio].
Result<std::vector<int32_t>> ReadCompressRatios(const weights::Metadata& metadata,
                                                std::string_view prefix, int32_t num_layers);

}  // namespace hayate::models
