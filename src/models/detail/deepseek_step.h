#pragma once
// What DeepSeek V4 and V4.1 prepare once for all layers of a step, and the parts of an attention
// sublayer that both have.

#include <span>

#include "models/detail/deepseek_trunk_weights.h"
#include "models/forward_batch.h"
#include "models/layers/latent_compressor.h"
#include "models/layers/rope_table.h"
#include "models/model.h"
#include "ops/sparse_attention/sparse_attention.h"

namespace hayate::models {

// The rotations of both kinds of layer; made at load.
struct DeepseekRope {
  RopeTable window, compressed;
  static Result<DeepseekRope> Create(Device& device, const DeepseekTrunkConfig& config,
                                     int32_t max_context);
};

// [count, R] rotations of these positions, in the workspace.
const float* TakeRotations(Stream stream, const RopeTable& rope, const int32_t* positions,
                           int64_t count, Workspace& workspace);
// The step row of every token, in the workspace.
ops::LatentTargets TakeTokenTargets(Stream stream, const ops::AttentionRows& rows,
                                    int32_t num_tokens, const int32_t* positions,
                                    Workspace& workspace);

struct DeepseekStep {
  const int32_t* positions = nullptr;         // [T]
  const float* window_cos_sin = nullptr;      // [T, R]
  const float* compressed_cos_sin = nullptr;  // [T, R]
  ops::LatentTargets token_targets;           // one per token
  // Per cache group of entries; empty elsewhere.
  static constexpr int kMaxGroups = 16;
  CompressorStep compressors[kMaxGroups];

  const float* CosSin(int32_t ratio) const {
    return ratio == 0 ? window_cos_sin : compressed_cos_sin;
  }
};

// Groups that hold no entries, −1: there is none; and the drafts that their states take back.
struct StateGroups {
  int pending = -1;
  int overlap = -1;
  int32_t max_drafts = 0;
};
DeepseekStep MakeDeepseekStep(const CacheLayout& layout, StateGroups states,
                              const DeepseekRope& rope, const ForwardBatch& batch,
                              const ForwardContext& context);
int64_t DeepseekStepBytes(const DeepseekTrunkConfig& config, const CacheLayout& layout,
                          int64_t max_tokens);

// Appends the latents of x [T, H] to the window's rows.
void AppendWindowRows(const ForwardContext& context, const DeepseekTrunkConfig& config,
                      const WindowAttention& weights, ConstTensorView x, const float* cos_sin,
                      const ops::LatentLayerView& cache, const ops::AttentionRows& rows,
                      const ops::LatentTargets& targets);

// norm(q_down · x), in the workspace: [T, q_rank].
TensorView TakeQueryLatent(const ForwardContext& context, const DeepseekTrunkConfig& config,
                           const WindowAttention& weights, ConstTensorView x);

// This rank's part of the sublayer's output [T, H]: turned queries of the latent, attention as
// `args` says (its caches, rows and selection; the rest is set here), the output projection. A rank
// without heads writes zeros.
void AttendLatents(const ForwardContext& context, const DeepseekTrunkConfig& config,
                   const WindowAttention& weights, ConstTensorView q_latent, const float* cos_sin,
                   ops::SparseAttentionArgs args, TensorView out);
// What the three above take, for queries of at most `max_keys` keys.
int64_t WindowAttentionBytes(const DeepseekTrunkConfig& config, int64_t heads, int64_t max_tokens,
                             int64_t max_keys);

}  // namespace hayate::models
