#include "models/detail/deepseek_v4_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ops/indexer/indexer.h"
#include "ops/norm/rms_norm.h"
#include "ops/sparse_attention/head_rotation.h"
#include "ops/sparse_attention/sparse_attention.h"

namespace hayate::models {
namespace {

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

}  // namespace

Result<DeepseekV4Rope> DeepseekV4Rope::Create(const DeepseekV4Config& config, int32_t max_context) {
  DeepseekV4Rope rope;
  ASSIGN_OR_RETURN(rope.window, ops::ComputeRopeFrequencies(config.window_rope, max_context));
  ASSIGN_OR_RETURN(rope.compressed,
                   ops::ComputeRopeFrequencies(config.compressed_rope, max_context));
  return rope;
}

DeepseekV4Step MakeDeepseekV4Step(const DeepseekV4Config& config, const DeepseekV4Cache& cache,
                                  const DeepseekV4Rope& rope, const ForwardBatch& batch,
                                  Workspace& workspace) {
  const int64_t tokens = batch.num_tokens, rotary = config.rotary_dim;
  const ops::AttentionRows& rows = batch.rows[0];
  DeepseekV4Step step = {.positions = batch.positions};
  const auto rotations = [&](const ops::RopeFrequencies& frequencies, const int32_t* positions,
                             int64_t count) {
    float* out = workspace.TakeArray<float>(count * rotary);
    ops::FillSinglePrecisionRopeRows(frequencies, positions, count, out);
    return out;
  };
  step.window_cos_sin = rotations(rope.window, batch.positions, tokens);
  step.compressed_cos_sin = rotations(rope.compressed, batch.positions, tokens);
  int32_t* seq = workspace.TakeArray<int32_t>(tokens);
  for (int32_t r = 0; r < rows.num_rows; ++r) {
    std::fill(seq + rows.q_begin[r], seq + rows.q_begin[r + 1], r);
  }
  step.window_targets = {batch.num_tokens, seq, batch.positions};

  const CacheLayout& layout = cache.layout();
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    if (layout.groups[g].kind != CacheKind::kCompressed) continue;
    int32_t* entry_seq = workspace.TakeArray<int32_t>(tokens);
    int32_t* entry_index = workspace.TakeArray<int32_t>(tokens);
    int32_t* entry_positions = workspace.TakeArray<int32_t>(tokens);
    CompressorStep& compressor = step.compressors[g];
    const int32_t count = ops::ListCompressedEntries(rows, batch.positions, layout.groups[g].ratio,
                                                     entry_seq, entry_index, entry_positions);
    compressor.positions = batch.positions;
    compressor.targets = {count, entry_seq, entry_index};
    compressor.cos_sin = rotations(rope.compressed, entry_positions, count);
    compressor.entry_rows = batch.rows[g];
    compressor.pending_rows = batch.rows[static_cast<size_t>(cache.pending_group())];
    if (cache.overlap_group() >= 0) {
      compressor.overlap_rows = batch.rows[static_cast<size_t>(cache.overlap_group())];
    }
    compressor.page_tokens = layout.page_tokens;
  }
  return step;
}

void DeepseekV4AttentionLayer::AppendWindow(const ForwardBatch& batch,
                                            const ForwardContext& context,
                                            const DeepseekV4Step& step, ConstTensorView x) const {
  Workspace& workspace = *context.workspace;
  const size_t mark = workspace.mark();
  const TensorView kv = workspace.Take(DType::kF32, {x.shape[0], config_.head_dim});
  Apply(context.stream, workspace, weights_.kv, x, kv);
  ops::LatentWrite(context.stream, workspace,
                   {.x = kv,
                    .norm = Floats(weights_.kv_norm),
                    .norm_eps = config_.norm_eps,
                    .cos_sin = CosSin(step),
                    .cache = cache_.WindowRows(layer_, pool(context, cache_.window_group())),
                    .rows = batch.rows[static_cast<size_t>(cache_.window_group())],
                    .targets = step.window_targets});
  workspace.ResetTo(mark);
}

void DeepseekV4AttentionLayer::AppendEntries(const ForwardContext& context,
                                             const DeepseekV4Step& step, ConstTensorView x) const {
  const int group = cache_.entry_group(layer_);
  const CompressorStep& compressor = step.compressors[group];
  std::byte* entries = pool(context, group);
  std::byte* pending = pool(context, cache_.pending_group());
  std::byte* overlap =
      config_.has_indexer(layer_) ? pool(context, cache_.overlap_group()) : nullptr;
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
    const ForwardContext& context, const DeepseekV4Step& step, ConstTensorView x,
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
                                   const DeepseekV4Step& step, ConstTensorView x,
                                   AttentionOutput wanted, TensorView out) const {
  Workspace& workspace = *context.workspace;
  const size_t mark = workspace.mark();
  AppendWindow(batch, context, step, x);
  if (ratio() > 0) AppendEntries(context, step, x);
  if (wanted == AttentionOutput::kCacheOnly) return;
  const int64_t tokens = x.shape[0], width = config_.head_dim;
  const int64_t heads = weights_.q_up.n() / width;
  if (heads == 0) {
    std::memset(out.data, 0, static_cast<size_t>(out.num_bytes()));
    return;
  }

  const TensorView q_latent = workspace.Take(DType::kF32, {tokens, config_.q_rank});
  Apply(context.stream, workspace, weights_.q_down, x, q_latent);
  ops::RmsNorm(
      context.stream,
      {.out = q_latent, .x = q_latent, .weight = Floats(weights_.q_norm), .eps = config_.norm_eps});
  TensorView q = workspace.Take(DType::kF32, {tokens, heads * width});
  Apply(context.stream, workspace, weights_.q_up, q_latent, q);
  q.shape = {tokens, heads, width};
  ops::RotateHeads(
      context.stream,
      {.x = q, .rotary = config_.rotary_dim, .cos_sin = CosSin(step), .rms_eps = config_.norm_eps});

  const TensorView attended = workspace.Take(DType::kF32, {tokens, heads, width});
  ops::SparseAttentionArgs args = {
      .out = attended,
      .q = q,
      .positions = step.positions,
      .window_cache = cache_.WindowRows(layer_, pool(context, cache_.window_group())),
      .window_rows = batch.rows[static_cast<size_t>(cache_.window_group())],
      .window = config_.window,
      .ratio = ratio(),
      .scale = 1.0f / std::sqrt(static_cast<float>(width)),
      .sinks = Floats(weights_.sinks)};
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
  ops::SparseAttention(context.stream, workspace, args);
  ops::RotateHeads(context.stream, {.x = attended,
                                    .rotary = config_.rotary_dim,
                                    .cos_sin = CosSin(step),
                                    .direction = ops::Rotation::kInverse});
  ApplyGroupedOutput(context.stream, workspace, weights_.output, attended, out);
  workspace.ResetTo(mark);
}

int64_t DeepseekV4AttentionLayer::WorkspaceBytes(const DeepseekV4Config& config, int64_t heads,
                                                 int64_t max_tokens, int64_t max_context) {
  const int64_t d = config.head_dim, index = int64_t{config.index_heads} * config.index_dim;
  int64_t most_entries = config.index_top_k, indexed = 0;
  for (int layer = 0; layer < config.num_layers; ++layer) {
    const int64_t ratio = config.ratio(layer);
    if (ratio == 0) continue;
    if (config.has_indexer(layer)) indexed = std::max(indexed, max_context / ratio);
    if (!config.has_indexer(layer)) most_entries = std::max(most_entries, max_context / ratio);
  }
  // Query latent, queries, attended heads, the output's latent and a group's copy; the selection
  // with its queries and weights.
  const int64_t floats =
      max_tokens * (d + config.q_rank + 3 * heads * d + int64_t{config.o_groups} * config.o_rank +
                    index + config.index_heads + config.index_top_k + 1);
  return floats * static_cast<int64_t>(sizeof(float)) +
         CompressWorkspaceBytes(max_tokens, config.hidden_size, 2 * d) +
         ops::SparseAttentionWorkspaceBytes(config.window + most_entries, heads, d) +
         ops::IndexerWorkspaceBytes(indexed, config.index_dim) +
         GroupedOutputWorkspaceBytes(OutputShapeOf(config), max_tokens) +
         ops::MatmulWorkspaceBytes(max_tokens,
                                   std::max<int64_t>(config.hidden_size, config.q_rank)) +
         16 * static_cast<int64_t>(Workspace::kAlignment);
}

}  // namespace hayate::models
