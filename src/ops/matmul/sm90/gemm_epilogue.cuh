#pragma once
// From accumulators to out. A slab is the 64 rows of A that one warpgroup multiplies: its fragment
// is laid out as wgmma.cuh says.

#include <cuda_bf16.h>

#include <cstdint>

#include "ops/matmul/sm90/gemm_config.cuh"

namespace hayate::ops::sm90 {

__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ __forceinline__ uint32_t TransposeMatrix8x8(uint32_t fragment) {
  uint32_t transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(fragment));
  return transposed;
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

// Value (row, column) of out from its sum.
struct Finish {
  const GemmParams& params;

  __device__ __forceinline__ float WeightScale(Scaling scaling, int n) const {
    return scaling == Scaling::kVector && n < params.n ? params.w_scale[n] : 1.0f;
  }
  __device__ __forceinline__ float RowScale(Scaling scaling, int t) const {
    return scaling == Scaling::kVector && t < params.t ? params.x_scale[t] : 1.0f;
  }
  __device__ __forceinline__ float Bias(int n) const {
    return params.bias != nullptr && n < params.n ? params.bias[n] : 0.0f;
  }
};

// 32 columns of one row of out, of which lane c of the quad holds columns 8i + 2c, + 1 in v[2i],
// v[2i + 1].
__device__ __forceinline__ void StoreRow32(const GemmParams& params, const float (&v)[8],
                                           int64_t row, int n0, bool inside) {
  const int c = threadIdx.x % 4;
  if (params.wide_stores && !params.out_f32) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) words[i] = PackBf16(v[2 * i], v[2 * i + 1]);
    TransposeInQuad(words);
    const int n = n0 + 8 * c;
    if (!inside || n >= params.n) return;
    *reinterpret_cast<uint4*>(static_cast<__nv_bfloat16*>(params.out) + row + n) =
        make_uint4(words[0], words[1], words[2], words[3]);
    return;
  }
  if (!inside) return;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const int n = n0 + i / 2 * 8 + 2 * c + i % 2;
    if (n >= params.n) continue;
    if (params.out_f32) {
      static_cast<float*>(params.out)[row + n] = v[i];
    } else {
      static_cast<__nv_bfloat16*>(params.out)[row + n] = __float2bfloat16_rn(v[i]);
    }
  }
}

// Rows of the slab are tokens t0 …, columns are features n0 ….
template <typename C>
__device__ __forceinline__ void StoreTokenSlab(const GemmParams& params, const float (&d)[C::kRegs],
                                               int t0, int n0) {
  const Finish finish{params};
  const int lane = threadIdx.x % 32, c = lane % 4;
  const int t = t0 + threadIdx.x % 128 / 32 * 16 + lane / 4;
  const float row_scale[2] = {finish.RowScale(C::kScaling, t), finish.RowScale(C::kScaling, t + 8)};
#pragma unroll
  for (int j = 0; j < C::kWidth / 8; j += 4) {
    float v[2][8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int n = n0 + (j + i / 2) * 8 + 2 * c + i % 2;
      const float w_scale = finish.WeightScale(C::kScaling, n), bias = finish.Bias(n);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        v[half][i] = d[4 * (j + i / 2) + 2 * half + i % 2] * (row_scale[half] * w_scale) + bias;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      StoreRow32(params, v[half], (t + 8 * half) * params.out_stride, n0 + 8 * j,
                 t + 8 * half < params.t);
    }
  }
}

// Rows of the slab are features n0 …, columns are tokens t0 ….
template <typename C>
__device__ __forceinline__ void StoreFeatureSlab(const GemmParams& params,
                                                 const float (&d)[C::kRegs], int t0, int n0) {
  const Finish finish{params};
  const int lane = threadIdx.x % 32, c = lane % 4;
  const int first = n0 + threadIdx.x % 128 / 32 * 16;
  const int n = first + lane / 4;
  const float w_scale[2] = {finish.WeightScale(C::kScaling, n),
                            finish.WeightScale(C::kScaling, n + 8)};
  const float bias[2] = {finish.Bias(n), finish.Bias(n + 8)};
#pragma unroll
  for (int j = 0; j < C::kWidth / 8; ++j) {
    if (t0 + 8 * j >= params.t) break;
    float v[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float row_scale = finish.RowScale(C::kScaling, t0 + 8 * j + 2 * c + e % 2);
      v[e] = d[4 * j + e] * (row_scale * w_scale[e / 2]) + bias[e / 2];
    }
    if (params.out_f32) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int t = t0 + 8 * j + 2 * c + e % 2, feature = n + e / 2 * 8;
        if (t < params.t && feature < params.n) {
          static_cast<float*>(params.out)[t * params.out_stride + feature] = v[e];
        }
      }
      continue;
    }
    const int t = t0 + 8 * j + lane / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t word = TransposeMatrix8x8(PackBf16(v[2 * half], v[2 * half + 1]));
      const int feature = first + 8 * half + 2 * c;
      if (t >= params.t || feature >= params.n) continue;
      __nv_bfloat16* to = static_cast<__nv_bfloat16*>(params.out) + t * params.out_stride + feature;
      if (params.wide_stores) {
        *reinterpret_cast<uint32_t*>(to) = word;
      } else {
        const __nv_bfloat162 pair = *reinterpret_cast<const __nv_bfloat162*>(&word);
        to[0] = pair.x;
        if (feature + 1 < params.n) to[1] = pair.y;
      }
    }
  }
}

}  // namespace hayate::ops::sm90
