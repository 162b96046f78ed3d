#pragma once
// The softmax of a consumer warpgroup of the prefill kernel, on fragments of warpgroup products
// (wgmma.cuh): a lane holds two rows, 16w + l/4 and that + 8, and of each the columns 8j + 2(l%4)
// and + 1. Maxima stay in raw scores; weights are 2^(score · scale − max · scale).

#include "ops/attention/sm90/mma.cuh"

namespace hayate::ops::sm90 {

// Positions that a lane's rows may see: [first, last].
struct RowSight {
  int32_t first[2], last[2];
};

struct RowSoftmax {
  float max[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0f, 0.0f};  // this lane's columns alone
};

__device__ __forceinline__ float QuadMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}
__device__ __forceinline__ float QuadSum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// Scores of unseen keys become −∞; `first_key` is the position of column 0.
template <int kCount>
__device__ __forceinline__ void MaskScores(float (&s)[kCount], const RowSight& sight,
                                           int32_t first_key) {
  const int32_t lane_key = first_key + 2 * (threadIdx.x % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int32_t first = sight.first[half] - lane_key, last = sight.last[half] - lane_key;
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int32_t column = 8 * i + e;
        if (column < first || column > last) s[4 * i + 2 * half + e] = -INFINITY;
      }
    }
  }
}

// Raw scores x to (cap / scale) · tanh(x · scale / cap), with tanh(y) = 1 − 2 / (e^2y + 1).
template <int kCount>
__device__ __forceinline__ void CapScores(float (&s)[kCount], float scale, float cap) {
  const float inner = 2.0f * 1.4426950408889634f * scale / cap, outer = cap / scale;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    s[i] = outer - __fdividef(2.0f * outer, Exp2(s[i] * inner) + 1.0f);
  }
}

// Scores to weights, and the factor by which earlier weights shrink.
template <int kCount>
__device__ __forceinline__ void AddScores(float (&s)[kCount], float scale_log2, RowSoftmax* rows,
                                          float (&correction)[2]) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float highest = rows->max[half];
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
      highest = fmaxf(highest, fmaxf(s[4 * i + 2 * half], s[4 * i + 2 * half + 1]));
    }
    highest = QuadMax(highest);
    // Before the first visible key the maximum is −∞, and −∞ − −∞ is no number.
    const float base = highest == -INFINITY ? 0.0f : highest * scale_log2;
    correction[half] = Exp2(rows->max[half] * scale_log2 - base);
    rows->max[half] = highest;
    float sum = rows->sum[half] * correction[half];
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s[4 * i + 2 * half + e];
        x = Exp2(fmaf(x, scale_log2, -base));
        sum += x;
      }
    }
    rows->sum[half] = sum;
  }
}

// Weights as the A operands of the products with the values, 16 keys each.
template <int kCount>
__device__ __forceinline__ void PackWeights(const float (&s)[kCount],
                                            uint32_t (&p)[kCount / 8][4]) {
#pragma unroll
  for (int t = 0; t < kCount / 8; ++t) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      p[t][i] = Packed(s[8 * t + 2 * i], s[8 * t + 2 * i + 1], __nv_bfloat16{});
    }
  }
}

template <int kCount>
__device__ __forceinline__ void Rescale(float (&o)[kCount], const float (&correction)[2]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) o[i] *= correction[i % 4 / 2];
}

}  // namespace hayate::ops::sm90
