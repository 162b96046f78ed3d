#pragma once
// Eight neighbouring elements of a row as floats: what a thread of the row-wise operators moves at
// a time, in accesses of 16 bytes. Rows begin on 16-byte borders.

#include <cuda_bf16.h>

#include <cstdint>

namespace hayate::ops::sm90 {

struct Eight {
  float v[8];
};

__device__ __forceinline__ Eight LoadEight(const float* from) {
  const float4 a = reinterpret_cast<const float4*>(from)[0];
  const float4 b = reinterpret_cast<const float4*>(from)[1];
  return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
}

__device__ __forceinline__ Eight LoadEight(const __nv_bfloat16* from) {
  const uint4 bits = *reinterpret_cast<const uint4*>(from);
  const uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
  Eight eight;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    eight.v[2 * i] = __uint_as_float(words[i] << 16);
    eight.v[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
  }
  return eight;
}

__device__ __forceinline__ void StoreEight(float* to, const Eight& eight) {
  const float* v = eight.v;
  reinterpret_cast<float4*>(to)[0] = make_float4(v[0], v[1], v[2], v[3]);
  reinterpret_cast<float4*>(to)[1] = make_float4(v[4], v[5], v[6], v[7]);
}

__device__ __forceinline__ void StoreEight(__nv_bfloat16* to, const Eight& eight) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(eight.v[2 * i], eight.v[2 * i + 1]);
    words[i] = reinterpret_cast<const uint32_t&>(pair);
  }
  *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ float ToFloat(float x) { return x; }
__device__ __forceinline__ float ToFloat(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ void FromFloat(float x, float* to) { *to = x; }
__device__ __forceinline__ void FromFloat(float x, __nv_bfloat16* to) {
  *to = __float2bfloat16_rn(x);
}

// Over the 32 lanes of a warp; every lane gets the result.
__device__ __forceinline__ float WarpSum(float x) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) x += __shfl_xor_sync(0xFFFFFFFFu, x, lane);
  return x;
}
__device__ __forceinline__ float WarpMax(float x) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) x = fmaxf(x, __shfl_xor_sync(0xFFFFFFFFu, x, lane));
  return x;
}

}  // namespace hayate::ops::sm90
