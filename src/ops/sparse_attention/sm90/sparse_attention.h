#pragma once
// ops::SparseAttention on a CUDA device, and what ops::LatentAttention is there: out may have fewer
// features than q and the rows, the first of each row being the value.

#include "ops/sparse_attention/sparse_attention.h"

namespace hayate::ops::sm90 {

void SparseAttention(Stream stream, Workspace& workspace, const SparseAttentionArgs& args);
int64_t SparseAttentionWorkspaceBytes(int64_t value_width);

// The kernels: any shape; bf16 by tensor cores where the shape suits.
bool HasTiledAttention(const SparseAttentionArgs& args);
void SimpleSparseAttention(Stream stream, const SparseAttentionArgs& args);
// Keys go in `splits` parts, whose results are joined: partials are [T · Hq, splits] rows of
// value_width sums, then the maximum and the sum of weights; null where splits is 1.
struct SplitSparseAttentionArgs {
  SparseAttentionArgs attention;
  int32_t num_heads = 0, width = 0, value_width = 0;
  int32_t splits = 1;
  float* partials = nullptr;
};
void TiledSparseAttention(Stream stream, const SplitSparseAttentionArgs& args);

}  // namespace hayate::ops::sm90
