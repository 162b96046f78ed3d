#pragma once
// What a fitted tile does besides storing its sums, as gemm_fused_store.cuh has it of narrow tiles.

#include "ops/matmul/sm90/fitted_store.cuh"
#include "ops/matmul/sm90/gemm_fused_store.cuh"

namespace hayate::ops::sm90 {

// Two of StoreTransposed's matrices.
__device__ __forceinline__ void StoreTransposed(void* row, const uint32_t (&words)[2]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(SharedAddress(row)),
      "r"(words[0]), "r"(words[1])
      : "memory");
}

// silu(gate) · up. Eight rows of gate and the same eight of up lie in turns, so that a thread has
// both of an element, and a warp eight features of out. The sums are rounded as if they had been
// stored between.
template <typename C>
__device__ __forceinline__ void StoreGatedPart(const FittedParams& params, const FittedBox<C>& box,
                                               const FittedScales<C>& scales,
                                               const float (&d)[C::kStoreSums],
                                               const FittedPart& part) {
  constexpr int kGatedBytes = kRowBytes / 2;
  const int warp = static_cast<int>(threadIdx.x) % 128 / 32;
  box.Take();
#pragma unroll
  for (int pair = 0; pair < C::kStoreOctets / 2; ++pair) {
    uint32_t words[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int j = 2 * pair + i;
      float v[4] = {d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]};
      scales.Finish(v, part.octet + j);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        v[e] = Silu(RoundedToBf16(v[e]), __nv_bfloat16{}) * RoundedToBf16(v[2 + e]);
      }
      words[i] = PackBf16(v[0], v[1]);
    }
    const int token = 16 * pair + static_cast<int>(threadIdx.x) % 16;
    StoreTransposed(box.template Chunk<kGatedBytes>(token, warp), words);
  }
  box.Send(params, part.t(), part.n / 2);
}

}  // namespace hayate::ops::sm90
