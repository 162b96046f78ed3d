#pragma once
// What a block of threads does to one vector in its shared memory. Every thread of the block calls
// these; each begins and ends with the vector visible to all.

#include "ops/detail/sm90/eight.cuh"
#include "ops/sparse_attention/sm90/row_cache.cuh"

namespace hayate::ops::sm90 {

// Σ x over the threads of a block; `scratch` has a float per warp.
__device__ __forceinline__ float BlockSum(float x, float* scratch) {
  const int warps = blockDim.x / 32;
  x = WarpSum(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.0f;
  for (int i = 0; i < warps; ++i) sum += scratch[i];
  return sum;
}

// x /= √(mean(x²) + eps), times `weight` where there is one.
__device__ inline void NormVector(float* x, int n, float eps, const float* weight, float* scratch) {
  float squares = 0.0f;
  for (int i = threadIdx.x; i < n; i += blockDim.x) squares = fmaf(x[i], x[i], squares);
  const float mean = BlockSum(squares, scratch) / static_cast<float>(n);
  const float inverse = 1.0f / sqrtf(mean + eps);
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    x[i] = x[i] * inverse * (weight == nullptr ? 1.0f : weight[i]);
  }
  __syncthreads();
}

// Pairs (2i, 2i + 1) of x [rotary]; cos then sin.
__device__ inline void TurnPairs(float* x, const float* cos_sin, int rotary, bool inverse) {
  const int half = rotary / 2;
  for (int i = threadIdx.x; i < half; i += blockDim.x) {
    const float cos = cos_sin[i], sin = inverse ? -cos_sin[half + i] : cos_sin[half + i];
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = __fsub_rn(__fmul_rn(a, cos), __fmul_rn(b, sin));
    x[2 * i + 1] = __fadd_rn(__fmul_rn(a, sin), __fmul_rn(b, cos));
  }
  __syncthreads();
}

// n a power of two. Sums in the order of ops::Hadamard.
__device__ inline void HadamardVector(float* x, int n) {
  for (int half = 1; half < n; half *= 2) {
    for (int i = threadIdx.x; i < n / 2; i += blockDim.x) {
      const int at = i / half * 2 * half + i % half;
      const float a = x[at], b = x[at + half];
      x[at] = a + b;
      x[at + half] = a - b;
    }
    __syncthreads();
  }
  const float scale = 1.0f / sqrtf(static_cast<float>(n));
  for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] *= scale;
  __syncthreads();
}

// Through E2M1 with a power-of-two scale per 32.
__device__ inline void SimulateFp4Vector(float* x, int n) {
  const int lane = threadIdx.x % 32;
  for (int b = threadIdx.x / 32 * 32; b < n; b += blockDim.x) {
    const int count = min(32, n - b);
    const float most = fmaxf(WarpMagnitude(x + b, count), 6.0f * 0x1p-126f);
    const float scale = FloatOfE8M0(CeilPowerOfTwo(most / 6.0f));
    if (lane < count) {
      const uint8_t code = CodeOfE2M1(RoundedToBf16(x[b + lane]) / scale);
      x[b + lane] = static_cast<float>(TwiceE2M1(code)) * 0.5f * scale;
    }
  }
  __syncthreads();
}

}  // namespace hayate::ops::sm90
