#pragma once
// From accumulators to out. A slab is 64 tokens × kWidth features; its fragment is laid out as
// wgmma.cuh says.

#include <cuda_bf16.h>

#include <cstdint>

#include "ops/matmul/sm90/gemm_config.cuh"

namespace hayate::ops::sm90 {

__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Lane c of each quad exchanges its four words, so that it ends with word c of every lane.
__device__ __forceinline__ void TransposeInQuad(uint32_t (&v)[4]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t got = __shfl_xor_sync(0xffffffff, odd ? v[i] : v[i + 1], 1);
    if (odd) {
      v[i] = got;
    } else {
      v[i + 1] = got;
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t got = __shfl_xor_sync(0xffffffff, high ? v[i] : v[i + 2], 2);
    if (high) {
      v[i] = got;
    } else {
      v[i + 2] = got;
    }
  }
}

// 8 · kCount columns of one row of out, of which lane c of the quad holds columns 8i + 2c, + 1 in
// v[2i], v[2i + 1]. All lanes of a warp call it.
template <int kCount>
__device__ __forceinline__ void StoreRow(const GemmParams& params, const float (&v)[2 * kCount],
                                         int64_t row, int n0, bool inside) {
  const int c = threadIdx.x % 4;
  if (params.wide_stores && !params.out_f32) {
    auto* out = static_cast<__nv_bfloat16*>(params.out) + row;
    uint32_t words[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) words[i] = PackBf16(v[2 * i], v[2 * i + 1]);
    if constexpr (kCount == 4) {
      TransposeInQuad(words);
      const int n = n0 + 8 * c;
      if (!inside || n >= params.n) return;
      *reinterpret_cast<uint4*>(out + n) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int n = n0 + 8 * i + 2 * c;
        if (inside && n < params.n) *reinterpret_cast<uint32_t*>(out + n) = words[i];
      }
    }
    return;
  }
  if (!inside) return;
#pragma unroll
  for (int i = 0; i < 2 * kCount; ++i) {
    const int n = n0 + i / 2 * 8 + 2 * c + i % 2;
    if (n >= params.n) continue;
    if (params.out_f32) {
      static_cast<float*>(params.out)[row + n] = v[i];
    } else {
      static_cast<__nv_bfloat16*>(params.out)[row + n] = __float2bfloat16_rn(v[i]);
    }
  }
}

// kCount groups of 8 columns from column n0 of out on, accumulators d[0 … 4 · kCount).
template <Scaling kScaling, int kCount>
__device__ __forceinline__ void StoreColumns(const GemmParams& params, const float* d, int t,
                                             int t_end, int n0, const float (&row_scale)[2]) {
  const int c = threadIdx.x % 4;
  float v[2][2 * kCount];
#pragma unroll
  for (int i = 0; i < 2 * kCount; ++i) {
    const int n = n0 + i / 2 * 8 + 2 * c + i % 2;
    const bool inside = n < params.n;
    const float bias = params.bias != nullptr && inside ? __ldg(params.bias + n) : 0.0f;
    const float w_scale = kScaling == Scaling::kVector && inside ? __ldg(params.w_scale + n) : 1.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = d[4 * (i / 2) + 2 * half + i % 2];
      v[half][i] =
          kScaling == Scaling::kVector ? fmaf(sum, row_scale[half] * w_scale, bias) : sum + bias;
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    StoreRow<kCount>(params, v[half], (t + 8 * half) * params.out_stride, n0, t + 8 * half < t_end);
  }
}

// Rows of the slab are tokens t0 … below t_end, columns are features n0 ….
template <typename C>
__device__ __forceinline__ void StoreSlab(const GemmParams& params, const float (&d)[C::kRegs],
                                          int t0, int t_end, int n0) {
  const int warp_t = t0 + static_cast<int>(threadIdx.x) % 128 / 32 * 16;
  const int end = min(t_end, params.t);
  if (warp_t >= end) return;
  const int t = warp_t + static_cast<int>(threadIdx.x) % 32 / 4;
  float row_scale[2] = {1.0f, 1.0f};
  if constexpr (C::kScaling == Scaling::kVector) {
    if (t < end) row_scale[0] = params.x_scale[t];
    if (t + 8 < end) row_scale[1] = params.x_scale[t + 8];
  }
  constexpr int kGroups = C::kWidth / 8, kWhole = kGroups / 4 * 4;
#pragma unroll
  for (int j = 0; j < kWhole; j += 4) {
    StoreColumns<C::kScaling, 4>(params, d + 4 * j, t, end, n0 + 8 * j, row_scale);
  }
  if constexpr (kGroups > kWhole) {
    StoreColumns<C::kScaling, kGroups - kWhole>(params, d + 4 * kWhole, t, end, n0 + 8 * kWhole,
                                                row_scale);
  }
}

}  // namespace hayate::ops::sm90
