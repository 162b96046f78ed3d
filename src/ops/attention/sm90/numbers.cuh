#pragma once
// fp32 to and from the element types of activations and caches.

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "ops/detail/sm90/eight.cuh"
#include "tensor/dtype.h"

namespace hayate::ops::sm90 {

__device__ __forceinline__ float ToFloat(__half x) { return __half2float(x); }
__device__ __forceinline__ float ToFloat(__nv_fp8_e4m3 x) { return static_cast<float>(x); }
__device__ __forceinline__ void FromFloat(float x, __half* to) { *to = __float2half_rn(x); }
// Saturates at ±448.
__device__ __forceinline__ void FromFloat(float x, __nv_fp8_e4m3* to) { *to = __nv_fp8_e4m3(x); }

__device__ __forceinline__ void StoreEight(__half* to, const Eight& eight) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __half2 pair = __floats2half2_rn(eight.v[2 * i], eight.v[2 * i + 1]);
    words[i] = reinterpret_cast<const uint32_t&>(pair);
  }
  *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
}
__device__ __forceinline__ void StoreEight(__nv_fp8_e4m3* to, const Eight& eight) {
  uint32_t words[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const __nv_fp8x4_e4m3 four(
        make_float4(eight.v[4 * i], eight.v[4 * i + 1], eight.v[4 * i + 2], eight.v[4 * i + 3]));
    words[i] = four.__x;
  }
  *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
}

// Two neighbours, moved as one.
template <typename T>
struct alignas(2 * sizeof(T)) Pair {
  T a, b;
};

// Calls f(T{}) with the C++ type of `dtype`; false if it is none of the four.
template <typename F>
bool WithFloatType(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      f(float{});
      return true;
    case DType::kF16:
      f(__half{});
      return true;
    case DType::kBF16:
      f(__nv_bfloat16{});
      return true;
    case DType::kF8E4M3:
      f(__nv_fp8_e4m3{});
      return true;
    default:
      return false;
  }
}

}  // namespace hayate::ops::sm90
