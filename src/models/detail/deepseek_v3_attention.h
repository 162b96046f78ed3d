#pragma once
// The attention sublayer of DeepSeek V3 and V3.2.

#include "models/detail/deepseek_v3_cache.h"
#include "models/detail/deepseek_v3_weights.h"
#include "models/model.h"

namespace hayate::models {

// What a step gives to every layer, for some tokens.
struct DeepseekV3Step {
  const ForwardContext& context;
  const ops::AttentionRows& rows;
  const int32_t* positions;  // [T]
  const float* cos_sin;      // [T, R]

  Stream stream() const { return context.stream; }
  Workspace& workspace() const { return *context.workspace; }
};

// One layer of one rank. The step's tokens are appended before they attend.
class DeepseekV3AttentionLayer {
 public:
  DeepseekV3AttentionLayer(const DeepseekV3Config& config, const DeepseekV3Attention& weights,
                           const DeepseekV3LayerCache& cache, ops::LatentForm form,
                           int32_t max_context)
      : config_(config), weights_(weights), cache_(cache), form_(form), max_context_(max_context) {}

  // The latents (and index keys) of x [T, H].
  void Append(const DeepseekV3Step& step, ConstTensorView x) const;
  // heads [T, heads of this rank · Dv] of x [T, H].
  void Attend(const DeepseekV3Step& step, ConstTensorView x, TensorView heads) const;

  static int64_t WorkspaceBytes(const DeepseekV3Config& config, const DeepseekV3Attention& weights,
                                int64_t max_tokens, int32_t max_context);

 private:
  // The tokens that each token attends to; no list: all.
  struct Selection {
    const int32_t* tokens = nullptr;  // [T, stride], ascending
    const int32_t* counts = nullptr;
    int64_t stride = 0;
  };
  void AppendIndexKeys(const DeepseekV3Step& step, ConstTensorView x) const;
  ConstTensorView LowRank(const DeepseekV3Step& step, ConstTensorView x) const;
  TensorView Queries(const DeepseekV3Step& step, ConstTensorView low) const;
  Selection Select(const DeepseekV3Step& step, ConstTensorView x, ConstTensorView low) const;

  const DeepseekV3Config& config_;
  const DeepseekV3Attention& weights_;
  const DeepseekV3LayerCache& cache_;
  const ops::LatentForm form_;
  const int32_t max_context_;
};

}  // namespace hayate::models
