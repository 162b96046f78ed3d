#pragma once
// The attention sublayer of DeepSeek V4 and what a step prepares for it.

#include "models/detail/deepseek_v4_cache.h"
#include "models/detail/deepseek_v4_weights.h"
#include "models/forward_batch.h"
#include "models/model.h"

namespace hayate::models {

// The rotations of both kinds of layer; made at load.
struct DeepseekV4Rope {
  ops::RopeFrequencies window, compressed;
  static Result<DeepseekV4Rope> Create(const DeepseekV4Config& config, int32_t max_context);
};

// What all layers of a step share. Lives in the step's workspace.
struct DeepseekV4Step {
  const int32_t* positions = nullptr;         // [T]
  const float* window_cos_sin = nullptr;      // [T, R]
  const float* compressed_cos_sin = nullptr;  // [T, R]
  ops::LatentTargets window_targets;          // one per token
  // Per cache group of compressed entries; empty elsewhere.
  static constexpr int kMaxGroups = 16;
  CompressorStep compressors[kMaxGroups];
};
DeepseekV4Step MakeDeepseekV4Step(const DeepseekV4Config& config, const DeepseekV4Cache& cache,
                                  const DeepseekV4Rope& rope, const ForwardBatch& batch,
                                  Workspace& workspace);

enum class AttentionOutput : uint8_t {
  kWanted,
  kCacheOnly,  // the cache alone is brought up to date
};

// One layer of one rank: appends to the cache and writes this rank's part of the output [T, H] for
// the sublayer's input x [T, H].
class DeepseekV4AttentionLayer {
 public:
  DeepseekV4AttentionLayer(const DeepseekV4Config& config, const DeepseekV4Cache& cache,
                           const DeepseekV4Attention& weights, int layer)
      : config_(config), cache_(cache), weights_(weights), layer_(layer) {}

  void Run(const ForwardBatch& batch, const ForwardContext& context, const DeepseekV4Step& step,
           ConstTensorView x, AttentionOutput wanted, TensorView out) const;

  static int64_t WorkspaceBytes(const DeepseekV4Config& config, int64_t heads, int64_t max_tokens,
                                int64_t max_context);

 private:
  struct Selected {
    int32_t* entries = nullptr;  // [T, top_k]
    int32_t* counts = nullptr;   // [T]
  };
  void AppendWindow(const ForwardBatch& batch, const ForwardContext& context,
                    const DeepseekV4Step& step, ConstTensorView x) const;
  void AppendEntries(const ForwardContext& context, const DeepseekV4Step& step,
                     ConstTensorView x) const;
  Selected Select(const ForwardContext& context, const DeepseekV4Step& step, ConstTensorView x,
                  ConstTensorView q_latent) const;
  std::byte* pool(const ForwardContext& context, int group) const {
    return context.pools[static_cast<size_t>(group)];
  }
  int32_t ratio() const { return config_.ratio(layer_); }
  const float* CosSin(const DeepseekV4Step& step) const {
    return ratio() == 0 ? step.window_cos_sin : step.compressed_cos_sin;
  }

  const DeepseekV4Config& config_;
  const DeepseekV4Cache& cache_;
  const DeepseekV4Attention& weights_;
  const int layer_;
};

}  // namespace hayate::models
