#pragma once
// The last step of an operator whose block holds a row in registers: fp8 codes and scales of it.

#include <cuda_fp8.h>

#include "base/check.h"
#include "ops/detail/sm90/eight.cuh"
#include "ops/quantize/fp8_rows.h"

namespace hayate::ops::sm90 {

__device__ __forceinline__ float HighestOf(const Eight& eight) {
  float highest = 0.0f;
#pragma unroll
  for (int j = 0; j < 8; ++j) highest = fmaxf(highest, fabsf(eight.v[j]));
  return highest;
}

// highest · (1 / 448); the multiplications are spelled out so that none is fused into another.
__device__ __forceinline__ float Fp8Scale(float highest) {
  return __fmul_rn(highest, 1.0f / kFp8Highest);
}

__device__ __forceinline__ void StoreCodes(uint8_t* to, const Eight& eight, float inverse) {
  uint32_t words[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float* v = eight.v + 4 * i;
    const uint32_t low = __nv_cvt_float2_to_fp8x2(
        make_float2(__fmul_rn(v[0], inverse), __fmul_rn(v[1], inverse)), __NV_SATFINITE, __NV_E4M3);
    const uint32_t high = __nv_cvt_float2_to_fp8x2(
        make_float2(__fmul_rn(v[2], inverse), __fmul_rn(v[3], inverse)), __NV_SATFINITE, __NV_E4M3);
    words[i] = low | high << 16;
  }
  *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
}

// 16 neighbouring threads hold a group of 128 columns.
__device__ __forceinline__ float GroupHighest(float highest) {
#pragma unroll
  for (int lane = 8; lane > 0; lane /= 2) {
    highest = fmaxf(highest, __shfl_xor_sync(0xFFFFFFFFu, highest, lane));
  }
  return highest;
}

__device__ __forceinline__ float BlockHighest(float highest) {
  __shared__ float warps[32];
  const int num_warps = (blockDim.x + 31) / 32, lane = threadIdx.x % 32;
  highest = WarpMax(highest);
  if (lane == 0) warps[threadIdx.x / 32] = highest;
  __syncthreads();
  return WarpMax(lane < num_warps ? warps[lane] : 0.0f);
}

// The block holds row `row` of `columns`, or for group scales a piece of it that begins with a
// group: thread t has in values[i] the 8 columns of chunk first + i · threads + t, where there is
// one. All threads of the block call it; blocks are whole warps.
template <int kChunks>
__device__ __forceinline__ void QuantizeRow(const Fp8Rows& out, int64_t row, int columns, int first,
                                            const Eight (&values)[kChunks]) {
  const int chunks = columns / 8;
  float row_highest = 0.0f;
  if (out.scaling == Fp8Scaling::kPerToken) {
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      if (first + static_cast<int>(i * blockDim.x + threadIdx.x) < chunks) {
        row_highest = fmaxf(row_highest, HighestOf(values[i]));
      }
    }
    row_highest = fmaxf(BlockHighest(row_highest), kFp8LeastHighest);
    if (threadIdx.x == 0) out.scales[row * out.row_stride] = Fp8Scale(row_highest);
  }
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int chunk = first + static_cast<int>(i * blockDim.x + threadIdx.x);
    const bool exists = chunk < chunks;
    float highest = row_highest;
    if (out.scaling == Fp8Scaling::kPerGroup) {
      highest = fmaxf(GroupHighest(exists ? HighestOf(values[i]) : 0.0f), kFp8LeastHighest);
      if (exists && chunk % 16 == 0) {
        out.scales[row * out.row_stride + chunk / 16 * out.group_stride] = Fp8Scale(highest);
      }
    }
    if (exists) {
      StoreCodes(out.codes + row * columns + chunk * 8, values[i], __fdiv_rn(kFp8Highest, highest));
    }
  }
}

// Of the host: what QuantizeRow asks of a row.
inline void CheckFp8Rows(const Fp8Rows& out, int64_t columns) {
  if (!out.wanted()) return;
  CHECK_EQ(columns % (out.scaling == Fp8Scaling::kPerGroup ? kFp8GroupColumns : 8), 0) << columns;
  CHECK_EQ(reinterpret_cast<uintptr_t>(out.codes) % 8, 0u);
}

}  // namespace hayate::ops::sm90
