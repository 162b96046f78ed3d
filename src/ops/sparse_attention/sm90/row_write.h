#pragma once
// Rows into the cache of a CUDA device: ops::LatentWrite, ops::AppendRows and ops::LatentAppend.

#include "ops/sparse_attention/latent_rows.h"

namespace hayate::ops::sm90 {

struct RowWriteArgs {
  ConstTensorView x;            // [N, D], f32 or bf16
  std::byte* normed = nullptr;  // [N, D] of the type of x, out: after the norm; or null
  const float* norm = nullptr;  // [norm_width]; null: none
  int32_t norm_width = 0;       // first features
  float norm_eps = 1e-6f;
  const float* cos_sin = nullptr;  // [N, R]; null: no rotation
  bool hadamard = false;
  LatentLayerView cache;
  AttentionRows rows;
  // Row i goes to entry index[i] of sequence seq[i], nowhere if that is negative. seq null: row i
  // is token i, and its sequence is the one that owns the token.
  const int32_t* seq = nullptr;
  const int32_t* index = nullptr;
};
void WriteRows(Stream stream, const RowWriteArgs& args);

void ListTokenRows(Stream stream, const AttentionRows& rows, int32_t num_tokens, int32_t* seq);

}  // namespace hayate::ops::sm90
