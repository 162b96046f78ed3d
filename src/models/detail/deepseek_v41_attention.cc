#include "models/detail/deepseek_v41_attention.h"

#include <algorithm>
#include <cmath>

#include "ops/sparse_attention/head_rotation.h"

namespace hayate::models {
namespace {

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

}  // namespace

DeepseekV41Step MakeDeepseekV41Step(const DeepseekV41Config& config, const DeepseekV41Cache& cache,
                                    const DeepseekRope& rope, const ForwardBatch& batch,
                                    const ForwardContext& context) {
  Workspace& workspace = *context.workspace;
  const int64_t tokens = batch.num_tokens;
  DeepseekV41Step step;
  static_cast<DeepseekStep&>(step) =
      MakeDeepseekStep(cache.layout(), cache.states(), rope, batch, context);
  step.selected = workspace.TakeArray<int32_t>(tokens * config.index_top_k);
  step.selected_counts = workspace.TakeArray<int32_t>(tokens);
  step.candidates = {.blocks = workspace.TakeArray<int32_t>(tokens * config.candidate_blocks),
                     .counts = workspace.TakeArray<int32_t>(tokens),
                     .max_blocks = config.candidate_blocks,
                     .block_size = config.candidate_block_size};
  return step;
}

int64_t DeepseekV41StepBytes(const DeepseekV41Config& config, const DeepseekV41Cache& cache,
                             int64_t max_tokens) {
  const int64_t words = config.index_top_k + 1 + config.candidate_blocks + 1;
  return DeepseekStepBytes(config, cache.layout(), max_tokens) +
         max_tokens * words * static_cast<int64_t>(sizeof(int32_t)) +
         4 * static_cast<int64_t>(Workspace::kAlignment);
}

void DeepseekV41AttentionLayer::Append(const ForwardBatch& batch, const ForwardContext& context,
                                       const DeepseekV41Step& step, ConstTensorView x) const {
  const int group = cache_.window_group();
  AppendWindowRows(context, config_, weights_.attention, x, step.CosSin(ratio()),
                   cache_.WindowRows(layer_, pool(context, group)),
                   batch.rows[static_cast<size_t>(group)], step.token_targets);
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
                    .pending = cache_.Pending(layer_, pool(context, cache_.states().pending))},
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
  const TensorView q_latent = TakeQueryLatent(context, config_, weights_.attention, x);
  // Even a rank without heads selects: the selection is the whole layer's.
  if (config_.selects(layer_)) Select(context, step, x, q_latent);
  ops::SparseAttentionArgs args = {
      .positions = step.positions,
      .window_cache = cache_.WindowRows(layer_, pool(context, cache_.window_group())),
      .window_rows = batch.rows[static_cast<size_t>(cache_.window_group())],
      .window = config_.window,
      .window_begin = batch.window_begin,
      .ratio = ratio()};
  if (ratio() > 0) {
    const int source = config_.kv_source(layer_), group = cache_.entry_group(source);
    args.entry_cache = cache_.Entries(source, pool(context, group));
    args.entry_rows = step.compressors[group].entry_rows;
    args.selected = step.selected;
    args.selected_count = step.selected_counts;
    args.selected_stride = config_.index_top_k;
  }
  AttendLatents(context, config_, weights_.attention, q_latent, step.CosSin(ratio()), args, out);
  workspace.ResetTo(mark);
}

int64_t DeepseekV41AttentionLayer::WorkspaceBytes(const DeepseekV41Config& config, int64_t heads,
                                                  int64_t max_tokens, int64_t max_context) {
  const int64_t d = config.head_dim, index = int64_t{config.index_heads} * config.index_dim;
  // Entries and their keys; index queries and weights.
  const int64_t floats = max_tokens * (d + config.index_dim + index + config.index_heads);
  return floats * static_cast<int64_t>(sizeof(float)) +
         WindowAttentionBytes(config, heads, max_tokens, config.window + config.index_top_k) +
         CompressWorkspaceBytes(max_tokens, config.hidden_size, 2 * d) +
         ops::IndexerWorkspaceBytes(max_context, config.index_dim) +
         8 * static_cast<int64_t>(Workspace::kAlignment);
}

}  // namespace hayate::models
