#pragma once
// The attention sublayer of DeepSeek V4.1 and what a step prepares for it.

#include "models/detail/deepseek_step.h"
#include "models/detail/deepseek_v41_cache.h"
#include "models/detail/deepseek_v41_weights.h"
#include "ops/indexer/indexer.h"

namespace hayate::models {

struct DeepseekV41Step : DeepseekStep {
  // The latest selection, and the latest candidates: written by one layer, read by those after it.
  int32_t* selected = nullptr;         // [T, top_k]
  int32_t* selected_counts = nullptr;  // [T]
  ops::IndexCandidates candidates;
};
DeepseekV41Step MakeDeepseekV41Step(const DeepseekV41Config& config, const DeepseekV41Cache& cache,
                                    const DeepseekRope& rope, const ForwardBatch& batch,
                                    const ForwardContext& context);
int64_t DeepseekV41StepBytes(const DeepseekV41Config& config, const DeepseekV41Cache& cache,
                             int64_t max_tokens);

// One layer of one rank: appends to the cache and writes this rank's part of the output [T, H] for
// the sublayer's input x [T, H]. Layers of a step run in order.
class DeepseekV41AttentionLayer {
 public:
  DeepseekV41AttentionLayer(const DeepseekV41Config& config, const DeepseekV41Cache& cache,
                            const DeepseekV41Layer& weights, int layer)
      : config_(config), cache_(cache), weights_(weights), layer_(layer) {}

  void Run(const ForwardBatch& batch, const ForwardContext& context, const DeepseekV41Step& step,
           ConstTensorView x, TensorView out) const;
  // The cache alone is brought up to date.
  void Append(const ForwardBatch& batch, const ForwardContext& context, const DeepseekV41Step& step,
              ConstTensorView x) const;

  static int64_t WorkspaceBytes(const DeepseekV41Config& config, int64_t heads, int64_t max_tokens,
                                int64_t max_context);

 private:
  void AppendEntries(const ForwardContext& context, const DeepseekV41Step& step,
                     ConstTensorView x) const;
  void Select(const ForwardContext& context, const DeepseekV41Step& step, ConstTensorView x,
              ConstTensorView q_latent) const;
  std::byte* pool(const ForwardContext& context, int group) const {
    return context.pools[static_cast<size_t>(group)];
  }
  int32_t ratio() const { return config_.ratio(layer_); }

  const DeepseekV41Config& config_;
  const DeepseekV41Cache& cache_;
  const DeepseekV41Layer& weights_;
  const int layer_;
};

}  // namespace hayate::models
