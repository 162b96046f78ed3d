#pragma once

#include "ops/detail/sm90/read_ahead.h"

namespace hayate::ops::sm90 {

// Asks for share `index` of `count`.
__device__ __forceinline__ void AskFor(const ReadAhead& ahead, uint32_t index, uint32_t count) {
  constexpr uint32_t kPiece = 4096;
  for (uint32_t at = index * kPiece; at < ahead.bytes; at += count * kPiece) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(ahead.data + at),
                 "r"(min(kPiece, ahead.bytes - at))
                 : "memory");
  }
}

// All threads of a row-wise launch.
__device__ __forceinline__ void AskForShareOfThread(const ReadAhead& ahead) {
  const uint32_t block = blockIdx.y * gridDim.x + blockIdx.x;
  AskFor(ahead, block * blockDim.x + threadIdx.x, gridDim.x * gridDim.y * blockDim.x);
}

}  // namespace hayate::ops::sm90
