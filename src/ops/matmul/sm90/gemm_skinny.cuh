#pragma once
// A consumer group's part of a narrow bf16 tile of up to 16 tokens. Instructions of a warpgroup
// multiply 64 rows of tokens, most of which are not there, and a block of K takes four of them one
// after the other: once x is there, a ring full of weights lasts 5 us. Instructions of a warp have
// 16 rows, and the four warps of a group take a step of 16 columns of every block each, as fast as
// the shared memory can be read. Their sums meet at the end, in the first warp, where the tokens
// lie as they do in a warpgroup's fragment.

#include "ops/attention/sm90/mma.cuh"
#include "ops/matmul/sm90/gemm_mainloop.cuh"

namespace hayate::ops::sm90 {

// The place of 16-byte chunk `chunk` of row `row` of a swizzled block of rows.
__device__ __forceinline__ const uint8_t* ChunkOf(const uint8_t* rows, int row, int chunk) {
  return rows + row * kRowBytes + ((chunk ^ row % 8) << 4);
}

// sum += the products of one step of a block; x and w point to the tokens and the group's features.
template <typename C>
__device__ __forceinline__ void MultiplyStep(float (&sum)[C::kRegs], const uint8_t* x,
                                             const uint8_t* w, int step) {
  const int lane = static_cast<int>(threadIdx.x) % 32, matrix = lane / 8, row = lane % 8;
  uint32_t a[4];
  LoadMatrices(a, ChunkOf(x, matrix % 2 * 8 + row, 2 * step + matrix / 2));
#pragma unroll
  for (int j = 0; j < C::kWidth / 8; j += 2) {
    // Of eight features both halves of the step, then of the next eight, where there are any.
    const int last = C::kWidth / 8 - 1;
    uint32_t b[4];
    LoadMatrices(b, ChunkOf(w, min(j + matrix / 2, last) * 8 + row, 2 * step + matrix % 2));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (j + i > last) continue;
      float(&d)[4] = *reinterpret_cast<float(*)[4]>(&sum[4 * (j + i)]);
      Mma(d, a, b[2 * i], b[2 * i + 1], __nv_bfloat16{});
    }
  }
}

// The warps of a group add their sums in order into those of the first, through the group's weights
// of the last stage, which all of them have read. Rows 8 … 15 meet only if there are such tokens.
template <typename C>
__device__ __forceinline__ void JoinWarps(float (&sum)[C::kRegs], uint8_t* weights, int group,
                                          bool many) {
  constexpr int kOctets = C::kWidth / 8, kWarps = 4;
  static_assert((kWarps - 1) * kOctets * 32 * sizeof(float2) <= C::kWidth * kRowBytes);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) % 128 / 32;
  const int barrier = 1 + group;
  auto* const place = reinterpret_cast<float2*>(weights) + lane;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half == 1 && !many) break;
    SyncThreads(barrier, 128);
    if (warp > 0) {
#pragma unroll
      for (int j = 0; j < kOctets; ++j) {
        place[((warp - 1) * kOctets + j) * 32] =
            make_float2(sum[4 * j + 2 * half], sum[4 * j + 2 * half + 1]);
      }
    }
    SyncThreads(barrier, 128);
    if (warp > 0) continue;
#pragma unroll
    for (int j = 0; j < kOctets; ++j) {
#pragma unroll
      for (int other = 0; other < kWarps - 1; ++other) {
        const float2 more = place[(other * kOctets + j) * 32];
        sum[4 * j + 2 * half] += more.x;
        sum[4 * j + 2 * half + 1] += more.y;
      }
    }
  }
}

// In the first warp of the group, the sums of a tile's tokens and the group's features.
template <typename C>
__device__ __forceinline__ void MultiplySkinny(Slabs<C>& slabs, const GemmParams& params,
                                               const GemmShared<C>& shared, RingState& ring,
                                               const GroupOrigin<C>& origin) {
  static_assert(C::kSlabs == 1 && C::kStepsPerBlock == 4);
  float(&sum)[C::kRegs] = slabs[0];
#pragma unroll
  for (int i = 0; i < C::kRegs; ++i) sum[i] = 0.0f;
  const int step = static_cast<int>(threadIdx.x) % 128 / 32;
  for (int32_t k = 0; k < params.k_blocks; k += C::kBlocks) {
    Wait(shared.full(ring.stage), ring.parity);
#pragma unroll
    for (int i = 0; i < C::kGroupBlocks; ++i) {
      const int block = origin.Block(i);
      MultiplyStep<C>(sum, shared.x(ring.stage, block),
                      shared.w(ring.stage, block) + origin.n * kRowBytes, step);
    }
    if (k + C::kBlocks >= params.k_blocks) {
      JoinWarps<C>(sum, shared.w(ring.stage, origin.Block(0)) + origin.n * kRowBytes, origin.group,
                   params.t > 8);
      FenceAsyncProxy();
    }
    __syncwarp();
    ReleaseStage<C>(shared, ring.stage);
    ring.Advance<C::kStages>();
  }
}

}  // namespace hayate::ops::sm90
