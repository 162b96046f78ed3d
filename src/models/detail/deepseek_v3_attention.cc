#include "models/detail/deepseek_v3_attention.h"

#include <algorithm>
#include <cmath>

#include "ops/indexer/indexer.h"
#include "ops/norm/layer_norm.h"
#include "ops/norm/rms_norm.h"
#include "ops/sparse_attention/head_rotation.h"

namespace hayate::models {
namespace {

constexpr float kIndexNormEps = 1e-6f;

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

int64_t QueryDim(const DeepseekV3Config& config) { return config.nope_dim + config.rope_dim; }

int64_t SelectionStride(const DeepseekV3Config& config, int32_t max_context) {
  return std::min(config.indexer->top_k, max_context);
}

}  // namespace

void DeepseekV3AttentionLayer::Append(const DeepseekV3Step& step, ConstTensorView x) const {
  const size_t mark = step.workspace().mark();
  const TensorView kv =
      step.workspace().Take(x.dtype, {x.shape[0], config_.latent_dim + config_.rope_dim});
  Apply(step.stream(), step.workspace(), weights_.kv_down, x, kv);
  ops::LatentAppend(step.stream(), step.workspace(),
                    {.x = kv,
                     .norm = Floats(weights_.kv_norm),
                     .norm_eps = config_.norm_eps,
                     .cos_sin = step.cos_sin,
                     .positions = step.positions,
                     .cache = cache_.latents,
                     .rows = step.rows});
  step.workspace().ResetTo(mark);
  if (weights_.indexer) AppendIndexKeys(step, x);
}

// Packed keys are transformed first, and the queries with them: the transform spreads what a single
// feature would lose to the quantiser, and keeps products as they are.
void DeepseekV3AttentionLayer::AppendIndexKeys(const DeepseekV3Step& step,
                                               ConstTensorView x) const {
  Workspace& workspace = step.workspace();
  const size_t mark = workspace.mark();
  const TokenIndexer& indexer = *weights_.indexer;
  const int64_t tokens = x.shape[0], d = config_.indexer->head_dim;
  const TensorView k = workspace.Take(x.dtype, {tokens, d});
  Apply(step.stream(), workspace, indexer.k, x, k);
  ops::LayerNorm(step.stream(), {.out = k,
                                 .x = k,
                                 .weight = Floats(indexer.k_norm),
                                 .bias = Floats(indexer.k_norm_bias),
                                 .eps = kIndexNormEps});
  // The first R features turn, in halves: not as the latent's do.
  ops::Rope(step.stream(), {.q = {k.data, k.dtype, {tokens, 0, d}},
                            .k = {k.data, k.dtype, {tokens, 1, d}},
                            .q_row_stride = d,
                            .k_row_stride = d,
                            .cos_sin = step.cos_sin,
                            .rotary_dim = config_.rope_dim});
  ops::AppendRows(step.stream(), workspace,
                  {.x = k,
                   .hadamard = cache_.packed,
                   .positions = step.positions,
                   .cache = cache_.keys,
                   .rows = step.rows});
  workspace.ResetTo(mark);
}

void DeepseekV3AttentionLayer::Attend(const DeepseekV3Step& step, ConstTensorView x,
                                      TensorView heads) const {
  const int64_t num_heads = weights_.projections.num_heads;
  if (num_heads == 0) return;
  const size_t mark = step.workspace().mark();
  const ConstTensorView low = LowRank(step, x);
  const Selection selection = weights_.indexer ? Select(step, x, low) : Selection();
  const TensorView q = Queries(step, low);
  ops::LatentAttention(
      step.stream(), step.workspace(),
      {.out = {heads.data, heads.dtype, {x.shape[0], num_heads, config_.value_dim}},
       .q = q,
       .positions = step.positions,
       .cache = cache_.latents,
       .rows = step.rows,
       .scale = config_.softmax_scale,
       .projections = &weights_.projections,
       .form = selection.tokens == nullptr ? form_ : ops::LatentForm::kAbsorbed,
       .selected = selection.tokens,
       .selected_count = selection.counts,
       .selected_stride = selection.stride});
  step.workspace().ResetTo(mark);
}

// norm(q_down · x), or x itself where queries have no low rank.
ConstTensorView DeepseekV3AttentionLayer::LowRank(const DeepseekV3Step& step,
                                                  ConstTensorView x) const {
  if (config_.q_rank == 0) return x;
  const TensorView down = step.workspace().Take(x.dtype, {x.shape[0], config_.q_rank});
  const TensorView normed = step.workspace().Take(x.dtype, {x.shape[0], config_.q_rank});
  Apply(step.stream(), step.workspace(), weights_.q_down, x, down);
  ops::RmsNorm(
      step.stream(),
      {.out = normed, .x = down, .weight = Floats(weights_.q_norm), .eps = config_.norm_eps});
  return normed;
}

// [T, heads, Dn + R], turned.
TensorView DeepseekV3AttentionLayer::Queries(const DeepseekV3Step& step,
                                             ConstTensorView low) const {
  const int64_t heads = weights_.projections.num_heads, tokens = low.shape[0];
  const TensorView q = step.workspace().Take(low.dtype, {tokens, heads * QueryDim(config_)});
  Apply(step.stream(), step.workspace(), weights_.q_up, low, q);
  const TensorView split{q.data, q.dtype, {tokens, heads, QueryDim(config_)}};
  ops::RotateHeads(step.stream(),
                   {.x = split, .rotary = config_.rope_dim, .cos_sin = step.cos_sin});
  return split;
}

// V3.2: the tokens that each token attends to.
DeepseekV3AttentionLayer::Selection DeepseekV3AttentionLayer::Select(const DeepseekV3Step& step,
                                                                     ConstTensorView x,
                                                                     ConstTensorView low) const {
  Workspace& workspace = step.workspace();
  const TokenIndexer& indexer = *weights_.indexer;
  const int64_t tokens = x.shape[0], heads = config_.indexer->num_heads,
                d = config_.indexer->head_dim, stride = SelectionStride(config_, max_context_);
  int32_t* selected = workspace.TakeArray<int32_t>(tokens * stride);
  int32_t* counts = workspace.TakeArray<int32_t>(tokens);
  const TensorView q = workspace.Take(x.dtype, {tokens, heads * d});
  const TensorView head_weights = workspace.Take(DType::kF32, {tokens, heads});
  Apply(step.stream(), workspace, indexer.q, low, q);
  Apply(step.stream(), workspace, indexer.head_weights, x, head_weights);
  const TensorView split{q.data, q.dtype, {tokens, heads, d}};
  ops::Rope(step.stream(), {.q = split,
                            .k = {q.data, q.dtype, {tokens, 0, d}},
                            .q_row_stride = heads * d,
                            .k_row_stride = d,
                            .cos_sin = step.cos_sin,
                            .rotary_dim = config_.rope_dim});
  if (cache_.packed) ops::RotateHeads(step.stream(), {.x = split, .hadamard = true});
  const double scale = 1.0 / std::sqrt(static_cast<double>(heads) * static_cast<double>(d));
  ops::SelectEntries(step.stream(), workspace,
                     {.selected = selected,
                      .counts = counts,
                      .top_k = static_cast<int32_t>(stride),
                      .q = split,
                      .weights = head_weights,
                      .weight_scale = static_cast<float>(scale),
                      .positions = step.positions,
                      .keys = cache_.keys,
                      .rows = step.rows,
                      .ratio = 1});
  return {selected, counts, stride};
}

int64_t DeepseekV3AttentionLayer::WorkspaceBytes(const DeepseekV3Config& config,
                                                 const DeepseekV3Attention& weights,
                                                 int64_t max_tokens, int32_t max_context) {
  const int64_t h = config.hidden_size, width = config.latent_dim + config.rope_dim;
  int64_t floats = max_tokens * (2 * int64_t{config.q_rank} +
                                 weights.projections.num_heads * QueryDim(config) + width);
  int64_t inner = std::max(ops::LatentAttentionWorkspaceBytes(weights.projections, max_tokens),
                           2 * width * static_cast<int64_t>(sizeof(float)) + 2 * 256);
  if (config.indexer) {
    const int64_t index = int64_t{config.indexer->num_heads} * config.indexer->head_dim;
    floats += max_tokens * (index + config.indexer->head_dim + config.indexer->num_heads +
                            SelectionStride(config, max_context) + 1);
    inner = std::max(inner, ops::IndexerWorkspaceBytes(max_context, config.indexer->head_dim));
  }
  const int64_t products =
      std::max(ops::MatmulWorkspaceBytes(max_tokens, h),
               ops::MatmulWorkspaceBytes(max_tokens, std::max(config.q_rank, 1)));
  return floats * static_cast<int64_t>(sizeof(float)) + inner + products +
         12 * static_cast<int64_t>(Workspace::kAlignment);
}

}  // namespace hayate::models
