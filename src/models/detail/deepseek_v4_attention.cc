#include "models/detail/deepseek_v4_attention.h"

#include <algorithm>
#include <cmath>

#include "ops/indexer/indexer.h"
#include "ops/sparse_attention/head_rotation.h"

namespace hayate::models {

void DeepseekV4AttentionLayer::Append(const ForwardBatch& batch, const ForwardContext& context,
                                      const DeepseekStep& step, ConstTensorView x) const {
  const int group = cache_.window_group();
  AppendWindowRows(context, config_, weights_.attention, x, step.CosSin(ratio()),
                   cache_.WindowRows(layer_, pool(context, group)),
                   batch.rows[static_cast<size_t>(group)], step.token_targets);
  if (ratio() > 0) AppendEntries(context, step, x);
}

void DeepseekV4AttentionLayer::AppendEntries(const ForwardContext& context,
                                             const DeepseekStep& step, ConstTensorView x) const {
  const int group = cache_.entry_group(layer_);
  const CompressorStep& compressor = step.compressors[group];
  std::byte* entries = pool(context, group);
  std::byte* pending = pool(context, cache_.states().pending);
  std::byte* overlap =
      config_.has_indexer(layer_) ? pool(context, cache_.states().overlap) : nullptr;
  CompressorCache main = {.rows = cache_.Entries(layer_, entries),
                          .pending = cache_.Pending(layer_, pending)};
  if (overlap != nullptr) main.overlap = cache_.Overlap(layer_, overlap);
  CompressTokens(context.stream, *context.workspace, *weights_.compressor, compressor, main, x,
                 config_.norm_eps, RowTransform::kNone);
  if (overlap == nullptr) return;
  CompressTokens(context.stream, *context.workspace, *weights_.index_compressor, compressor,
                 {.rows = cache_.IndexKeys(layer_, entries),
                  .pending = cache_.IndexPending(layer_, pending),
                  .overlap = cache_.IndexOverlap(layer_, overlap)},
                 x, config_.norm_eps, RowTransform::kHadamard);
}

DeepseekV4AttentionLayer::Selected DeepseekV4AttentionLayer::Select(
    const ForwardContext& context, const DeepseekStep& step, ConstTensorView x,
    ConstTensorView q_latent) const {
  Workspace& workspace = *context.workspace;
  const int64_t tokens = x.shape[0], heads = config_.index_heads, width = config_.index_dim;
  const Selected selected = {workspace.TakeArray<int32_t>(tokens * config_.index_top_k),
                             workspace.TakeArray<int32_t>(tokens)};
  const size_t mark = workspace.mark();
  TensorView q = workspace.Take(DType::kF32, {tokens, heads * width});
  const TensorView weights = workspace.Take(DType::kF32, {tokens, heads});
  Apply(context.stream, workspace, weights_.index_q, q_latent, q);
  Apply(context.stream, workspace, weights_.index_weights, x, weights);
  q.shape = {tokens, heads, width};
  ops::RotateHeads(context.stream, {.x = q,
                                    .rotary = config_.rotary_dim,
                                    .cos_sin = step.compressed_cos_sin,
                                    .hadamard = true,
                                    .simulate_fp4 = cache_.packed()});
  const int group = cache_.entry_group(layer_);
  ops::SelectEntries(context.stream, workspace,
                     {.selected = selected.entries,
                      .counts = selected.counts,
                      .top_k = config_.index_top_k,
                      .q = q,
                      .weights = weights,
                      .weight_scale = 1.0f / std::sqrt(static_cast<float>(heads * width)),
                      .positions = step.positions,
                      .keys = cache_.IndexKeys(layer_, pool(context, group)),
                      .rows = step.compressors[group].entry_rows,
                      .ratio = ratio()});
  workspace.ResetTo(mark);
  return selected;
}

void DeepseekV4AttentionLayer::Run(const ForwardBatch& batch, const ForwardContext& context,
                                   const DeepseekStep& step, ConstTensorView x,
                                   TensorView out) const {
  Workspace& workspace = *context.workspace;
  const size_t mark = workspace.mark();
  Append(batch, context, step, x);
  const TensorView q_latent = TakeQueryLatent(context, config_, weights_.attention, x);
  ops::SparseAttentionArgs args = {
      .positions = step.positions,
      .window_cache = cache_.WindowRows(layer_, pool(context, cache_.window_group())),
      .window_rows = batch.rows[static_cast<size_t>(cache_.window_group())],
      .window = config_.window,
      .window_begin = batch.window_begin,
      .ratio = ratio()};
  if (ratio() > 0) {
    const int group = cache_.entry_group(layer_);
    args.entry_cache = cache_.Entries(layer_, pool(context, group));
    args.entry_rows = step.compressors[group].entry_rows;
  }
  if (config_.has_indexer(layer_)) {
    const Selected selected = Select(context, step, x, q_latent);
    args.selected = selected.entries;
    args.selected_count = selected.counts;
    args.selected_stride = config_.index_top_k;
  }
  AttendLatents(context, config_, weights_.attention, q_latent, step.CosSin(ratio()), args, out);
  workspace.ResetTo(mark);
}

int64_t DeepseekV4AttentionLayer::WorkspaceBytes(const DeepseekV4Config& config, int64_t heads,
                                                 int64_t max_tokens, int64_t max_context) {
  const int64_t index = int64_t{config.index_heads} * config.index_dim;
  int64_t most_entries = config.index_top_k, indexed = 0;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const int64_t ratio = config.ratio(layer);
    if (ratio == 0) continue;
    if (config.has_indexer(layer)) indexed = std::max(indexed, max_context / ratio);
    if (!config.has_indexer(layer)) most_entries = std::max(most_entries, max_context / ratio);
  }
  // The selection with its queries and weights.
  const int64_t floats = max_tokens * (index + config.index_heads + config.index_top_k + 1);
  return floats * static_cast<int64_t>(sizeof(float)) +
         WindowAttentionBytes(config, heads, max_tokens, config.window + most_entries) +
         CompressWorkspaceBytes(max_tokens, config.hidden_size, 2 * config.head_dim) +
         ops::IndexerWorkspaceBytes(indexed, config.index_dim) +
         8 * static_cast<int64_t>(Workspace::kAlignment);
}

}  // namespace hayate::models
