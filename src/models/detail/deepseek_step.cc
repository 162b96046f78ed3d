#include "models/detail/deepseek_step.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "ops/norm/rms_norm.h"
#include "ops/sparse_attention/head_rotation.h"
#include "ops/zero/zero.h"

namespace hayate::models {
namespace {

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

bool HoldsEntries(const CacheGroup& group) {
  return group.kind == CacheKind::kFull || group.kind == CacheKind::kCompressed;
}

}  // namespace

Result<DeepseekRope> DeepseekRope::Create(Device& device, const DeepseekTrunkConfig& config,
                                          int32_t max_context) {
  DeepseekRope rope;
  ASSIGN_OR_RETURN(const ops::RopeFrequencies window,
                   ops::ComputeRopeFrequencies(config.window_rope, max_context));
  ASSIGN_OR_RETURN(const ops::RopeFrequencies compressed,
                   ops::ComputeRopeFrequencies(config.compressed_rope, max_context));
  ASSIGN_OR_RETURN(rope.window, PlaceFrequencies(device, window));
  ASSIGN_OR_RETURN(rope.compressed, PlaceFrequencies(device, compressed));
  return rope;
}

const float* TakeRotations(Stream stream, const RopeTable& rope, const int32_t* positions,
                           int64_t count, Workspace& workspace) {
  const auto half = static_cast<int64_t>(rope.inv_freq.size() / sizeof(float));
  const TensorView out = workspace.Take(DType::kF32, {count, 2 * half});
  ops::SinglePrecisionRopeRows(
      stream, {.out = out, .positions = positions, .inv_freq = Floats(rope.inv_freq)});
  return out.as<float>();
}

ops::LatentTargets TakeTokenTargets(Stream stream, const ops::AttentionRows& rows,
                                    int32_t num_tokens, const int32_t* positions,
                                    Workspace& workspace) {
  int32_t* seq = workspace.TakeArray<int32_t>(num_tokens);
  ops::ListTokenRows(stream, rows, num_tokens, seq);
  return {num_tokens, seq, positions};
}

DeepseekStep MakeDeepseekStep(const CacheLayout& layout, StateGroups states,
                              const DeepseekRope& rope, const ForwardBatch& batch,
                              const ForwardContext& context) {
  DCHECK_LE(layout.groups.size(), size_t{DeepseekStep::kMaxGroups});
  const Stream stream = context.stream;
  Workspace& workspace = *context.workspace;
  const int64_t tokens = batch.num_tokens;
  const ops::AttentionRows& rows = batch.rows[0];
  DeepseekStep step = {
      .positions = batch.positions,
      .window_cos_sin = TakeRotations(stream, rope.window, batch.positions, tokens, workspace),
      .compressed_cos_sin =
          TakeRotations(stream, rope.compressed, batch.positions, tokens, workspace),
      .token_targets =
          TakeTokenTargets(stream, rows, batch.num_tokens, batch.positions, workspace)};
  for (size_t g = 0; g < layout.groups.size(); ++g) {
    if (!HoldsEntries(layout.groups[g])) continue;
    int32_t* entry_seq = workspace.TakeArray<int32_t>(tokens);
    int32_t* entry_index = workspace.TakeArray<int32_t>(tokens);
    int32_t* entry_positions = workspace.TakeArray<int32_t>(tokens);
    CompressorStep& compressor = step.compressors[g];
    const int32_t count = ops::ListCompressedEntries(stream, {.rows = rows,
                                                              .settled = batch.settled,
                                                              .positions = batch.positions,
                                                              .num_tokens = batch.num_tokens,
                                                              .ratio = layout.groups[g].ratio,
                                                              .seq = entry_seq,
                                                              .index = entry_index,
                                                              .entry_positions = entry_positions});
    compressor.positions = batch.positions;
    compressor.targets = {count, entry_seq, entry_index};
    compressor.cos_sin = TakeRotations(stream, rope.compressed, entry_positions, count, workspace);
    compressor.entry_rows = batch.rows[g];
    if (states.pending >= 0) {
      compressor.pending_rows = batch.rows[static_cast<size_t>(states.pending)];
    }
    if (states.overlap >= 0) {
      compressor.overlap_rows = batch.rows[static_cast<size_t>(states.overlap)];
    }
    compressor.page_tokens = layout.page_tokens;
    compressor.max_drafts = states.max_drafts;
  }
  return step;
}

int64_t DeepseekStepBytes(const DeepseekTrunkConfig& config, const CacheLayout& layout,
                          int64_t max_tokens) {
  const auto groups = static_cast<int64_t>(layout.groups.size());
  const int64_t words = 2 * config.rotary_dim + 1 + groups * (3 + config.rotary_dim);
  return max_tokens * words * static_cast<int64_t>(sizeof(float)) +
         (3 + 4 * groups) * static_cast<int64_t>(Workspace::kAlignment);
}

void AppendWindowRows(const ForwardContext& context, const DeepseekTrunkConfig& config,
                      const WindowAttention& weights, ConstTensorView x, const float* cos_sin,
                      const ops::LatentLayerView& cache, const ops::AttentionRows& rows,
                      const ops::LatentTargets& targets) {
  Workspace& workspace = *context.workspace;
  const size_t mark = workspace.mark();
  const TensorView kv = workspace.Take(DType::kF32, {x.shape[0], config.head_dim});
  Apply(context.stream, workspace, weights.kv, x, kv);
  ops::LatentWrite(context.stream, workspace,
                   {.x = kv,
                    .norm = Floats(weights.kv_norm),
                    .norm_eps = config.norm_eps,
                    .cos_sin = cos_sin,
                    .cache = cache,
                    .rows = rows,
                    .targets = targets});
  workspace.ResetTo(mark);
}

TensorView TakeQueryLatent(const ForwardContext& context, const DeepseekTrunkConfig& config,
                           const WindowAttention& weights, ConstTensorView x) {
  const TensorView latent = context.workspace->Take(x.dtype, {x.shape[0], config.q_rank});
  Apply(context.stream, *context.workspace, weights.q_down, x, latent);
  ops::RmsNorm(
      context.stream,
      {.out = latent, .x = latent, .weight = Floats(weights.q_norm), .eps = config.norm_eps});
  return latent;
}

void AttendLatents(const ForwardContext& context, const DeepseekTrunkConfig& config,
                   const WindowAttention& weights, ConstTensorView q_latent, const float* cos_sin,
                   ops::SparseAttentionArgs args, TensorView out) {
  Workspace& workspace = *context.workspace;
  const size_t mark = workspace.mark();
  const int64_t tokens = q_latent.shape[0], width = config.head_dim;
  const int64_t heads = weights.q_up.n() / width;
  if (heads == 0) {
    workspace.ResetTo(mark);
    return ops::Zero(context.stream, out);
  }
  TensorView q = workspace.Take(q_latent.dtype, {tokens, heads * width});
  Apply(context.stream, workspace, weights.q_up, q_latent, q);
  q.shape = {tokens, heads, width};
  ops::HeadRotationArgs rotate = {.x = q, .rotary = config.rotary_dim, .cos_sin = cos_sin};
  if (config.query_norm) rotate.rms_eps = config.norm_eps;
  ops::RotateHeads(context.stream, rotate);
  args.out = workspace.Take(q_latent.dtype, {tokens, heads, width});
  args.q = q;
  args.scale = 1.0f / std::sqrt(static_cast<float>(width));
  args.sinks = Floats(weights.sinks);
  ops::SparseAttention(context.stream, workspace, args);
  ops::RotateHeads(context.stream, {.x = args.out,
                                    .rotary = config.rotary_dim,
                                    .cos_sin = cos_sin,
                                    .direction = ops::Rotation::kInverse});
  ApplyGroupedOutput(context.stream, workspace, weights.output, args.out, out);
  workspace.ResetTo(mark);
}

int64_t WindowAttentionBytes(const DeepseekTrunkConfig& config, int64_t heads, int64_t max_tokens,
                             int64_t max_keys) {
  const int64_t d = config.head_dim;
  const int64_t floats = max_tokens * (d + config.q_rank + 2 * heads * d);
  return floats * static_cast<int64_t>(sizeof(float)) + ops::LatentWriteWorkspaceBytes(d) +
         ops::SparseAttentionWorkspaceBytes(max_keys, heads, d) +
         GroupedOutputWorkspaceBytes(OutputShapeOf(config), max_tokens) +
         ops::MatmulWorkspaceBytes(max_tokens,
                                   std::max<int64_t>({config.hidden_size, config.q_rank, d})) +
         8 * static_cast<int64_t>(Workspace::kAlignment);
}

}  // namespace hayate::models
