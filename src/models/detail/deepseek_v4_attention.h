#pragma once
// The attention sublayer of DeepSeek V4.

#include "models/detail/deepseek_step.h"
#include "models/detail/deepseek_v4_cache.h"
#include "models/detail/deepseek_v4_weights.h"

namespace hayate::models {

// One layer of one rank: appends to the cache and writes this rank's part of the output [T, H] for
// the sublayer's input x [T, H].
class DeepseekV4AttentionLayer {
 public:
  DeepseekV4AttentionLayer(const DeepseekV4Config& config, const DeepseekV4Cache& cache,
                           const DeepseekV4Layer& weights, int layer)
      : config_(config), cache_(cache), weights_(weights), layer_(layer) {}

  void Run(const ForwardBatch& batch, const ForwardContext& context, const DeepseekStep& step,
           ConstTensorView x, TensorView out) const;
  // The cache alone is brought up to date.
  void Append(const ForwardBatch& batch, const ForwardContext& context, const DeepseekStep& step,
              ConstTensorView x) const;

  static int64_t WorkspaceBytes(const DeepseekV4Config& config, int64_t heads, int64_t max_tokens,
                                int64_t max_context);

 private:
  struct Selected {
    int32_t* entries = nullptr;  // [T, top_k]
    int32_t* counts = nullptr;   // [T]
  };
  void AppendEntries(const ForwardContext& context, const DeepseekStep& step,
                     ConstTensorView x) const;
  Selected Select(const ForwardContext& context, const DeepseekStep& step, ConstTensorView x,
                  ConstTensorView q_latent) const;
  std::byte* pool(const ForwardContext& context, int group) const {
    return context.pools[static_cast<size_t>(group)];
  }
  int32_t ratio() const { return config_.ratio(layer_); }

  const DeepseekV4Config& config_;
  const DeepseekV4Cache& cache_;
  const DeepseekV4Layer& weights_;
  const int layer_;
};

}  // namespace hayate::models
