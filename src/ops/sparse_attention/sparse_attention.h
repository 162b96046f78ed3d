#pragma once
// Attention of every query to two sets of latent rows in one softmax: a sliding window of recent
// tokens, and compressed entries of the whole past (DeepSeek V4: CSA and HCA).
//
//   keys(t)   = window rows of positions max(0, p − W + 1) … p   ∪   entries of t
//   s_i       = scale · (q[t, h] · k_i);   M = max_i s_i
//   out[t, h] = Σ_i exp(s_i − M) k_i / (Σ_i exp(s_i − M) + exp(sink[h] − M))
//
// A latent is key and value at once. A token may be seen twice, in the window and inside an entry:
// that is meant. The order of summation is window by position, then entries by index: it depends on
// the query alone, not on the batch or on how the prompt was chunked.

#include <cstdint>

#include "ops/sparse_attention/latent_rows.h"

namespace hayate::ops {

struct SparseAttentionArgs {
  TensorView out;                      // [T, Hq, D]
  ConstTensorView q;                   // [T, Hq, D]; f32 or, on CUDA, bf16
  const int32_t* positions = nullptr;  // [T]

  LatentLayerView window_cache;
  AttentionRows window_rows;
  int32_t window = 0;  // W, counting the token's own row
  // Per step row, the first position that has window rows at all; null: 0 for every row.
  const int32_t* window_begin = nullptr;

  // Entries; ratio 0: none. Entry e covers tokens [e·ratio, (e + 1)·ratio) and is visible to
  // position p when e < (p + 1) / ratio.
  LatentLayerView entry_cache;
  AttentionRows entry_rows;
  // Token 0 of q is token `first_token` of the rows' count; CUDA alone.
  int32_t first_token = 0;
  int32_t ratio = 0;
  // Which of the visible entries a token attends to: selected[t, 0 … selected_count[t]), ascending.
  // Null: all of them.
  const int32_t* selected = nullptr;  // [T, selected_stride]
  const int32_t* selected_count = nullptr;
  int64_t selected_stride = 0;

  float scale = 1.0f;
  const float* sinks = nullptr;  // [Hq] or null
};
void SparseAttention(Stream stream, Workspace& workspace, const SparseAttentionArgs& args);

// `max_keys`: the most keys of one query.
int64_t SparseAttentionWorkspaceBytes(int64_t max_keys, int64_t num_heads, int64_t width);

// The definition, in double over the same arguments.
void SparseAttentionReference(const SparseAttentionArgs& args);

}  // namespace hayate::ops
