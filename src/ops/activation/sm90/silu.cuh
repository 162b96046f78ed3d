#pragma once
// silu(x) = x / (1 + e^(−x)), as the activations of the second argument's type take it.

#include <cuda_bf16.h>

namespace hayate::ops::sm90 {

// The exact mode (f32) takes the library's exponential and division.
__device__ __forceinline__ float Silu(float x, float) { return x / (1.0f + expf(-x)); }
__device__ __forceinline__ float Silu(float x, __nv_bfloat16) {
  return __fdividef(x, 1.0f + __expf(-x));
}

}  // namespace hayate::ops::sm90
