#include "models/detail/deepseek_v41_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "ops/norm/rms_norm.h"
#include "ops/sparse_attention/head_rotation.h"
#include "ops/sparse_attention/sparse_attention.h"

namespace hayate::models {
namespace {

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

bool HoldsEntries(const CacheGroup& group) {
  return group.kind == CacheKind::kFull || group.kind == CacheKind::kCompressed;
}

}  // namespace

Result<DeepseekV41Rope> DeepseekV41Rope::Create(const DeepseekV41Config& config,
                                                int32_t max_context) {
  DeepseekV41Rope rope;
  ASSIGN_OR_RETURN(rope.window, ops::ComputeRopeFrequencies(config.window_rope, max_context));
  ASSIGN_OR_RETURN(rope.compressed,
                   ops::ComputeRopeFrequencies(config.compressed_rope, max_context));
  return rope;
}

DeepseekV41Step MakeDeepseekV41Step(const DeepseekV41Config& config, const DeepseekV41Cache& cache,
                                    const DeepseekV41Rope& rope, const ForwardBatch& batch,
                                    Workspace& workspace) {
  const int64_t tokens = batch.num_tokens, rotary = config.rotary_dim;
  const ops::AttentionRows& rows = batch.rows[0];
  DeepseekV41Step step = {.positions = batch.positions};
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
  step.token_targets = {batch.num_tokens, seq, batch.positions};
  step.selected = workspace.TakeArray<int32_t>(tokens * config.index_top_k);
  step.selected_counts = workspace.TakeArray<int32_t>(tokens);
  step.candidates = {.blocks = workspace.TakeArray<int32_t>(tokens * config.candidate_blocks),
                     .counts = workspace.TakeArray<int32_t>(tokens),
                     .max_blocks = config.candidate_blocks,
                     .block_size = config.candidate_block_size};

  const CacheLayout& layout = cache.layout();
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    if (!HoldsEntries(layout.groups[g])) continue;
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
    if (cache.pending_group() >= 0) {
      compressor.pending_rows = batch.rows[static_cast<size_t>(cache.pending_group())];
    }
    compressor.page_tokens = layout.page_tokens;
  }
  return step;
}

int64_t DeepseekV41StepBytes(const DeepseekV41Config& config, const DeepseekV41Cache& cache,
                             int64_t max_tokens) {
  const auto groups = static_cast<int64_t>(cache.layout().groups.size());
  const int64_t words = 2 * config.rotary_dim + 1 + config.index_top_k + 1 +
                        config.candidate_blocks + 1 + groups * (3 + config.rotary_dim);
  return max_tokens * words * 4 + (7 + 4 * groups) * static_cast<int64_t>(Workspace::kAlignment);
}

void DeepseekV41AttentionLayer::Append(const ForwardBatch& batch, const ForwardContext& context,
                                       const DeepseekV41Step& step, ConstTensorView x) const {
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
                    .targets = step.token_targets});
  workspace.ResetTo(mark);
  if (weights_.source) AppendEntries(context, step, x);
}

// The latent gives the index key before it is rotated itself.
void DeepseekV41AttentionLayer::AppendEntries(const ForwardContext& context,
                                              const DeepseekV41Step& step,
                                              ConstTensorView x) const {
  Workspace& workspace = *context.workspace;
  const size_t mark = workspace.mark();
  const EntrySource& source = *weights_.source;
  const int group = cache_.entry_group(layer_);
  const CompressorStep& compressor = step.compressors[group];
  std::byte* entries = pool(context, group);
  TensorView latents = workspace.Take(
      DType::kF32,
      {ratio() > 1 ? std::max(1, compressor.targets.count) : x.shape[0], config_.head_dim});
  if (ratio() > 1) {
    CompressTokens(context.stream, workspace, source.compressor, compressor,
                   {.rows = cache_.Entries(layer_, entries),
                    .pending = cache_.Pending(layer_, pool(context, cache_.pending_group()))},
                   x, config_.norm_eps, RowTransform::kNone, latents);
  } else {
    Apply(context.stream, workspace, source.kv, x, latents);
    ops::LatentWrite(context.stream, workspace,
                     {.x = latents,
                      .norm = Floats(source.norm),
                      .norm_eps = config_.norm_eps,
                      .cos_sin = compressor.cos_sin,
                      .cache = cache_.Entries(layer_, entries),
                      .rows = compressor.entry_rows,
                      .targets = compressor.targets});
  }
  if (compressor.targets.count > 0) {
    latents.shape = {compressor.targets.count, config_.head_dim};
    const TensorView keys =
        workspace.Take(DType::kF32, {compressor.targets.count, config_.index_dim});
    Apply(context.stream, workspace, source.key, latents, keys);
    ops::LatentWrite(context.stream, workspace,
                     {.x = keys,
                      .norm = Floats(source.key_norm),
                      .norm_eps = config_.norm_eps,
                      .cos_sin = compressor.cos_sin,
                      .cache = cache_.IndexKeys(layer_, entries),
                      .rows = compressor.entry_rows,
                      .targets = compressor.targets});
  }
  workspace.ResetTo(mark);
}

void DeepseekV41AttentionLayer::Select(const ForwardContext& context, const DeepseekV41Step& step,
                                       ConstTensorView x, ConstTensorView q_latent) const {
  Workspace& workspace = *context.workspace;
  const size_t mark = workspace.mark();
  const int64_t tokens = x.shape[0], heads = config_.index_heads, width = config_.index_dim;
  TensorView q = workspace.Take(DType::kF32, {tokens, heads * width});
  const TensorView weights = workspace.Take(DType::kF32, {tokens, heads});
  Apply(context.stream, workspace, weights_.index_q, q_latent, q);
  Apply(context.stream, workspace, weights_.index_weights, x, weights);
  q.shape = {tokens, heads, width};
  ops::RotateHeads(context.stream, {.x = q,
                                    .rotary = config_.rotary_dim,
                                    .cos_sin = step.compressed_cos_sin,
                                    .simulate_fp4 = cache_.packed()});
  const int source = config_.kv_source(layer_), group = cache_.entry_group(source);
  const auto use = layer_ == config_.candidate_source  ? ops::CandidateUse::kProduce
                   : layer_ > config_.candidate_source ? ops::CandidateUse::kConsume
                                                       : ops::CandidateUse::kNone;
  ops::SelectEntries(context.stream, workspace,
                     {.selected = step.selected,
                      .counts = step.selected_counts,
                      .top_k = config_.index_top_k,
                      .q = q,
                      .weights = weights,
                      .weight_scale = 1.0f / std::sqrt(static_cast<float>(heads * width)),
                      .positions = step.positions,
                      .keys = cache_.IndexKeys(source, pool(context, group)),
                      .rows = step.compressors[group].entry_rows,
                      .ratio = ratio(),
                      .candidate_use = use,
                      .candidates = step.candidates});
  workspace.ResetTo(mark);
}

void DeepseekV41AttentionLayer::Run(const ForwardBatch& batch, const ForwardContext& context,
                                    const DeepseekV41Step& step, ConstTensorView x,
                                    TensorView out) const {
  Workspace& workspace = *context.workspace;
  const size_t mark = workspace.mark();
  Append(batch, context, step, x);
  const int64_t tokens = x.shape[0], width = config_.head_dim;
  const TensorView q_latent = workspace.Take(DType::kF32, {tokens, config_.q_rank});
  Apply(context.stream, workspace, weights_.q_down, x, q_latent);
  ops::RmsNorm(
      context.stream,
      {.out = q_latent, .x = q_latent, .weight = Floats(weights_.q_norm), .eps = config_.norm_eps});
  // Even a rank without heads selects: the selection is the whole layer's.
  if (config_.selects(layer_)) Select(context, step, x, q_latent);
  const int64_t heads = weights_.q_up.n() / width;
  if (heads == 0) {
    std::memset(out.data, 0, static_cast<size_t>(out.num_bytes()));
    workspace.ResetTo(mark);
    return;
  }
  TensorView q = workspace.Take(DType::kF32, {tokens, heads * width});
  Apply(context.stream, workspace, weights_.q_up, q_latent, q);
  q.shape = {tokens, heads, width};
  ops::RotateHeads(context.stream, {.x = q, .rotary = config_.rotary_dim, .cos_sin = CosSin(step)});

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
    const int source = config_.kv_source(layer_), group = cache_.entry_group(source);
    args.entry_cache = cache_.Entries(source, pool(context, group));
    args.entry_rows = step.compressors[group].entry_rows;
    args.selected = step.selected;
    args.selected_count = step.selected_counts;
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

int64_t DeepseekV41AttentionLayer::WorkspaceBytes(const DeepseekV41Config& config, int64_t heads,
                                                  int64_t max_tokens, int64_t max_context) {
  const int64_t d = config.head_dim, index = int64_t{config.index_heads} * config.index_dim;
  // Window latents, entries and their keys; query latent, queries and attended heads; index queries
  // and weights.
  const int64_t floats = max_tokens * (2 * d + config.index_dim + config.q_rank + 2 * heads * d +
                                       index + config.index_heads);
  return floats * static_cast<int64_t>(sizeof(float)) +
         CompressWorkspaceBytes(max_tokens, config.hidden_size, 2 * d) +
         ops::SparseAttentionWorkspaceBytes(config.window + config.index_top_k, heads, d) +
         ops::IndexerWorkspaceBytes(max_context, config.index_dim) +
         GroupedOutputWorkspaceBytes(OutputShapeOf(config), max_tokens) +
         ops::MatmulWorkspaceBytes(max_tokens,
                                   std::max<int64_t>({config.hidden_size, config.q_rank, d})) +
         16 * static_cast<int64_t>(Workspace::kAlignment);
}

}  // namespace hayate::models
