#pragma once
// The attention operators on CUDA, queued on `stream`. No allocation, no synchronisation: all may
// be captured into a graph. Activations (q, k, v, out) are bf16 or f32; the cache f32, f16, bf16 or
// e4m3, laid out K [Hkv, P, D] then V [Hkv, P, D] per layer of a page.

#include "ops/attention/rope_kv_write.h"

namespace hayate::ops::sm90 {

void KvWrite(Stream stream, const KvWriteArgs& args);
void RopeKvWrite(Stream stream, const RopeKvWriteArgs& args);

void PagedAttention(Stream stream, const PagedAttentionArgs& args);

// The definition in fp32, one warp a key: any page size, any head dimension up to 256. The order of
// summation depends on a token's position alone. Serves the exact mode and shapes the fast kernels
// do not take.
void SimpleAttention(Stream stream, const PagedAttentionArgs& args);

}  // namespace hayate::ops::sm90
