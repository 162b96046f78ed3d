#pragma once
// Multi-head latent attention (DeepSeek V3): the cache holds one row [c | r] per token, c the L
// features that every head's keys and values are made of, r the R features that turn with the
// position. For head h with its parts Uk, Uv of the up projection
//
//   s(t, h, j) = scale · ( q_nope[t, h] · Uk_h c_j + q_rope[t, h] · r_j )
//   out[t, h]  = Σ_j softmax_j(s) · Uv_h c_j       over j ≤ position(t), or those selected for t
//
// Two forms, equal but for rounding:
//   absorbed      q' = Ukᵀ q_nope once per query, then attention over the rows themselves, then Uv:
//                 reads (L + R) features per key for all heads at once. Decode, and selected keys.
//   materialised  keys and values of a block of rows are made once for all queries of the row:
//                 2 (Dn + R + Dv) flop per pair and head instead of 2 (2L + R). Prefill.
// In each form the order of summation depends on the query's position (or list) alone, not on the
// batch or on how the prompt was chunked; keys come in blocks of 32 with a running softmax. On CUDA
// the form is the absorbed one, and in the fast mode keys are split by how many tokens a step has.

#include <cstdint>
#include <optional>
#include <vector>

#include "ops/matmul/matmul.h"
#include "ops/sparse_attention/latent_rows.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/workspace.h"

namespace hayate::ops {

enum class LatentForm : uint8_t { kAbsorbed, kMaterialised };

// One layer's up projections, for this rank's heads.
struct LatentProjections {
  int32_t num_heads = 0;               // Hq of this rank
  int32_t latent_dim = 0;              // L
  int32_t nope_dim = 0;                // Dn
  int32_t rope_dim = 0;                // R
  int32_t value_dim = 0;               // Dv
  std::vector<PackedMatrix> absorb;    // [Hq], each Ukᵀ [L, Dn]
  std::vector<PackedMatrix> value;     // [Hq], each Uv [Dv, L]
  std::optional<PackedMatrix> expand;  // [Hq · (Dn + Dv), L]: per head Uk, then Uv; kMaterialised
  Buffer addresses;                    // CUDA, of PlaceProjections: [2, Hq] of absorb, of value

  int64_t bytes() const;
};
// To be called once all matrices are there, before the first LatentAttention.
Status PlaceProjections(Device& device, LatentProjections& projections);

struct LatentAttentionArgs {
  TensorView out;                      // [T, Hq, Dv], of the type of q
  ConstTensorView q;                   // [T, Hq, Dn + R], the last R turned; f32 or, on CUDA, bf16
  const int32_t* positions = nullptr;  // [T]
  LatentLayerView cache;               // width L + R, rotary R; holds the rows' own tokens already
  AttentionRows rows;
  float scale = 1.0f;
  const LatentProjections* projections = nullptr;
  LatentForm form = LatentForm::kAbsorbed;
  // Which tokens each token attends to, ascending: selected[t, 0 … counts[t]). Null: all up to its
  // own. Absorbed form only.
  const int32_t* selected = nullptr;  // [T, selected_stride]
  const int32_t* selected_count = nullptr;
  int64_t selected_stride = 0;
};
void LatentAttention(Stream stream, Workspace& workspace, const LatentAttentionArgs& args);

int64_t LatentAttentionWorkspaceBytes(const LatentProjections& projections, int64_t max_tokens);

// The rows of a step's tokens: c = x[:L] normed (RMS, `norm`), r = x[L:] turned in pairs (2i,
// 2i+1).
struct LatentAppendArgs {
  ConstTensorView x;            // [T, L + R]
  const float* norm = nullptr;  // [L]
  float norm_eps = 1e-6f;
  const float* cos_sin = nullptr;      // [T, R]: cos then sin
  const int32_t* positions = nullptr;  // [T]
  LatentLayerView cache;
  AttentionRows rows;
};
void LatentAppend(Stream stream, Workspace& workspace, const LatentAppendArgs& args);

// The definition, in double over dequantised up projections: uk [Hq, Dn, L], uv [Hq, Dv, L].
void LatentAttentionReference(const LatentAttentionArgs& args, const std::vector<float>& uk,
                              const std::vector<float>& uv);

}  // namespace hayate::ops
