#include "models/layers/attention.h"

#include <algorithm>
#include <cmath>

#include "ops/attention/rope_kv_write.h"

namespace hayate::models {
namespace {

const float* Floats(const Buffer& buffer) { return reinterpret_cast<const float*>(buffer.data()); }

// `heads` heads from column `column` on of the rows of qkv [T, qkv_width].
TensorView HeadsOf(const TensorView& qkv, int64_t column, int64_t heads, int32_t head_dim) {
  return {qkv.data + RowBytes(qkv.dtype, column), qkv.dtype, Shape{qkv.shape[0], heads, head_dim}};
}

TensorView Project(Stream stream, Workspace& workspace, const AttentionShape& shape,
                   const AttentionLayer& layer, const LinearInput& input) {
  const TensorView qkv = workspace.Take(input.x.dtype, {input.x.rows(), shape.qkv_width()});
  Apply(stream, workspace, layer.qkv, input, qkv);
  return qkv;
}

}  // namespace

void AttendHeads(Stream stream, Workspace& workspace, const AttentionShape& shape,
                 const AttentionLayer& layer, const AttentionStep& step,
                 const ops::AttentionRows& rows, const ops::KvLayerView& cache,
                 const LinearInput& input, TensorView heads_out) {
  if (shape.heads.query.size() == 0) return;
  const size_t mark = workspace.mark();
  const TensorView qkv = Project(stream, workspace, shape, layer, input);
  AttendProjected(stream, workspace, shape, layer, step, rows, cache, qkv, heads_out);
  workspace.ResetTo(mark);
}

void AppendKeysValues(Stream stream, Workspace& workspace, const AttentionShape& shape,
                      const AttentionLayer& layer, const AttentionStep& step,
                      const ops::AttentionRows& rows, const ops::KvLayerView& cache,
                      const LinearInput& input) {
  if (shape.heads.query.size() == 0) return;
  const size_t mark = workspace.mark();
  const TensorView qkv = Project(stream, workspace, shape, layer, input);
  AppendProjected(stream, shape, layer, step, rows, cache, qkv);
  workspace.ResetTo(mark);
}

void AttendProjected(Stream stream, Workspace& workspace, const AttentionShape& shape,
                     const AttentionLayer& layer, const AttentionStep& step,
                     const ops::AttentionRows& rows, const ops::KvLayerView& cache,
                     const TensorView& qkv, TensorView heads_out) {
  if (shape.heads.query.size() == 0) return;
  AppendProjected(stream, shape, layer, step, rows, cache, qkv);
  const Shape heads{qkv.shape[0], shape.heads.query.size(), shape.head_dim};
  ops::PagedAttention(stream, workspace,
                      {.out = {heads_out.data, heads_out.dtype, heads},
                       .q = TensorView{qkv.data, qkv.dtype, heads},
                       .q_row_stride = shape.qkv_width(),
                       .rows = rows,
                       .cache = cache,
                       .scale = 1.0f / std::sqrt(static_cast<float>(shape.head_dim)),
                       .group_size = shape.group_size,
                       .group_offset = shape.heads.group_offset,
                       .window = layer.window,
                       .sinks = Floats(layer.sinks)});
}

void AppendProjected(Stream stream, const AttentionShape& shape, const AttentionLayer& layer,
                     const AttentionStep& step, const ops::AttentionRows& rows,
                     const ops::KvLayerView& cache, const TensorView& qkv) {
  if (shape.heads.query.size() == 0) return;
  const int64_t width = shape.qkv_width(), kv_heads = shape.heads.kv.size();
  const TensorView k = HeadsOf(qkv, shape.q_width(), kv_heads, shape.head_dim);
  const TensorView v = HeadsOf(qkv, shape.q_width() + shape.kv_width(), kv_heads, shape.head_dim);
  ops::RopeKvWrite(stream, {.rope = {.q = HeadsOf(qkv, 0, shape.heads.query.size(), shape.head_dim),
                                     .k = k,
                                     .q_row_stride = width,
                                     .k_row_stride = width,
                                     .cos_sin = step.cos_sin,
                                     .rotary_dim = shape.rotary_dim,
                                     .pairing = shape.pairing,
                                     .q_norm = Floats(layer.q_norm),
                                     .k_norm = Floats(layer.k_norm),
                                     .norm_eps = shape.norm_eps},
                            .write = {.k = k,
                                      .v = v,
                                      .k_row_stride = width,
                                      .v_row_stride = width,
                                      .positions = step.positions,
                                      .rows = rows,
                                      .cache = cache}});
}

int64_t AttentionWorkspaceBytes(const AttentionShape& shape, int64_t max_tokens,
                                int64_t hidden_size) {
  const int64_t qkv = max_tokens * shape.qkv_width() * static_cast<int64_t>(sizeof(float)) +
                      static_cast<int64_t>(Workspace::kAlignment);
  return qkv + std::max(ops::MatmulWorkspaceBytes(max_tokens, hidden_size),
                        ops::PagedAttentionWorkspaceBytes(max_tokens, shape.heads.query.size(),
                                                          shape.head_dim));
}

}  // namespace hayate::models
