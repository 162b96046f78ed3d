#pragma once
// A warpgroup's part of one tile: the products of all stages of K.

#include "ops/detail/sm90/wgmma.cuh"
#include "ops/matmul/sm90/gemm_pipeline.cuh"

namespace hayate::ops::sm90 {

template <typename C>
using Slabs = float[C::kSlabs][C::kRegs];

// What consumer group `group` multiplies: its first token and first feature inside the tile, and
// which blocks of a stage.
template <typename C>
struct GroupOrigin {
  int group, t, n;
  __device__ explicit GroupOrigin(int index)
      : group(index),
        t(C::kNarrow ? 0 : index * C::kSlabs * 64),
        n(C::kNarrow && !C::kSplitK ? index * C::kWidth : 0) {}
  __device__ int Block(int i) const { return C::kSplitK ? kConsumerGroups * i + group : i; }
};

// Queues the products of one slab over one block of K.
template <typename C>
__device__ __forceinline__ void MultiplySlab(float (&d)[C::kRegs], const GemmShared<C>& shared,
                                             uint32_t stage, int block,
                                             const GroupOrigin<C>& origin, int slab,
                                             int accumulate) {
  const uint64_t a = SharedOperand(shared.x(stage, block) + (origin.t + slab * 64) * kRowBytes);
  const uint64_t b = SharedOperand(shared.w(stage, block) + origin.n * kRowBytes);
#pragma unroll
  for (int step = 0; step < C::kStepsPerBlock; ++step) {
    if constexpr (C::kFp8) {
      Wgmma<C::kWidth>::E4M3(d, a + 2 * step, b + 2 * step, accumulate | (step > 0));
    } else {
      Wgmma<C::kWidth>::Bf16(d, a + 2 * step, b + 2 * step, accumulate | (step > 0));
    }
  }
}

// The sums stay in the tensor cores' accumulators.
template <typename C>
__device__ __forceinline__ void MultiplyPlain(Slabs<C>& sum, const GemmParams& params,
                                              const GemmShared<C>& shared, RingState& ring,
                                              const GroupOrigin<C>& origin) {
  uint32_t previous = 0;
  for (int32_t k = 0; k < params.k_blocks; k += C::kBlocks) {
    Wait(shared.full(ring.stage), ring.parity);
    WgmmaFence();
#pragma unroll
    for (int i = 0; i < C::kGroupBlocks; ++i) {
#pragma unroll
      for (int slab = 0; slab < C::kSlabs; ++slab) {
        MultiplySlab<C>(sum[slab], shared, ring.stage, origin.Block(i), origin, slab, k + i > 0);
      }
    }
    WgmmaCommit();
    if (k > 0) {
      WgmmaWait<1>();
      ReleaseStage<C>(shared, previous);
    }
    previous = ring.stage;
    ring.Advance<C::kStages>();
  }
  WgmmaWait<0>();
  ReleaseStage<C>(shared, previous);
}

// The scales of the weights of a group's features in the blocks of one stage. Scales change every
// 128 features: with narrow tiles at most once inside a group, at a multiple of 8 features; tiles
// of 128 features have one, wider ones one for every 64 features.
template <typename C>
struct WeightScales {
  static constexpr int kScaleRows = static_cast<int>(kScaleColumns);
  static constexpr int kCount = C::kNarrow ? 2 : C::kTileN == kScaleRows ? 1 : C::kTileN / 64;
  float values[C::kGroupBlocks][kCount];

  // `n0` is the group's first feature; `first` the first scale that the stage holds.
  __device__ __forceinline__ void Load(const GemmShared<C>& shared, uint32_t stage,
                                       const GroupOrigin<C>& origin, int n0, int first) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int row = C::kNarrow ? n0 / kScaleRows + i : (n0 + i * 64) / kScaleRows;
#pragma unroll
      for (int b = 0; b < C::kGroupBlocks; ++b) {
        values[b][i] = shared.w_scales(stage, origin.Block(b))[min(row - first, 7)];
      }
    }
  }
  // Of features 8j … 8j + 7; `border` is the j at which the second scale begins (narrow).
  __device__ __forceinline__ float At(int block, int j, int border) const {
    if constexpr (C::kNarrow) return j < border ? values[block][0] : values[block][1];
    return values[block][kCount == 1 ? 0 : 8 * j / 64];
  }
};

__device__ __forceinline__ void WaitForProducts(int pending) {
  switch (pending) {  // a constant once loops are unrolled
    case 0:
      return WgmmaWait<0>();
    case 1:
      return WgmmaWait<1>();
    case 2:
      return WgmmaWait<2>();
    default:
      return WgmmaWait<3>();
  }
}

// The scales that a thread needs of one stage.
template <typename C>
struct StageScales {
  WeightScales<C> w;
  float x[C::kGroupBlocks][C::kSlabs][2];  // of the thread's two rows

  __device__ __forceinline__ void Load(const GemmShared<C>& shared, uint32_t stage,
                                       const GroupOrigin<C>& origin, int n0, int first_w, int row) {
    w.Load(shared, stage, origin, n0, first_w);
#pragma unroll
    for (int b = 0; b < C::kGroupBlocks; ++b) {
#pragma unroll
      for (int slab = 0; slab < C::kSlabs; ++slab) {
        const float* scales = shared.x_scales(stage, origin.Block(b)) + slab * 64 + row;
        x[b][slab][0] = scales[0];
        x[b][slab][1] = scales[8];
      }
    }
  }
};

// sum += scales · products of every 128 of K: they leave the tensor cores, whose fp8 sums keep
// about 14 bits, for fp32. The next stage's scales are read while this one's products run. Narrow
// tiles; gemm_mainloop_wide.cuh has the others.
template <typename C>
__device__ __forceinline__ void MultiplyScaled(Slabs<C>& sum, const GemmParams& params,
                                               const GemmShared<C>& shared, RingState& ring,
                                               const GroupOrigin<C>& origin, const GemmWork& work) {
  constexpr int kGroups = C::kGroupBlocks * C::kSlabs;
  const int n0 = work.tile_n * C::kTileN + origin.n;
  const int first_w = FirstScale(params, work.tile_n * C::kTileN);
  const int border = C::kNarrow ? 16 - n0 / 8 % 16 : 0;
  const int warp_row = origin.t + static_cast<int>(threadIdx.x) % 128 / 32 * 16;
  // Warps whose rows are past the tile have nothing to sum; any scales will do for them.
  const bool busy = C::kTileT >= 64 || warp_row < C::kTileT;
  const int row = (busy ? warp_row : 0) + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
  for (int slab = 0; slab < C::kSlabs; ++slab) {
#pragma unroll
    for (int i = 0; i < C::kRegs; ++i) sum[slab][i] = 0.0f;
  }
  StageScales<C> next;
  Wait(shared.full(ring.stage), ring.parity);
  next.Load(shared, ring.stage, origin, n0, first_w, row);
  for (int32_t k = 0; k < params.k_blocks; k += C::kBlocks) {
    const StageScales<C> scales = next;
    const uint32_t stage = ring.stage;
    float d[C::kGroupBlocks][C::kSlabs][C::kRegs];
    WgmmaFence();
#pragma unroll
    for (int b = 0; b < C::kGroupBlocks; ++b) {
#pragma unroll
      for (int slab = 0; slab < C::kSlabs; ++slab) {
        MultiplySlab<C>(d[b][slab], shared, stage, origin.Block(b), origin, slab, 0);
        WgmmaCommit();
      }
    }
    ring.Advance<C::kStages>();
    if (k + C::kBlocks < params.k_blocks) {
      Wait(shared.full(ring.stage), ring.parity);
      next.Load(shared, ring.stage, origin, n0, first_w, row);
    }
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int b = group / C::kSlabs, slab = group % C::kSlabs;
      WaitForProducts(kGroups - 1 - group);
      if (group == kGroups - 1) ReleaseStage<C>(shared, stage);
      if (!busy) continue;
#pragma unroll
      for (int j = 0; j < C::kWidth / 8; ++j) {
        const float w_scale = scales.w.At(b, j, border);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          sum[slab][4 * j + e] =
              fmaf(scales.x[b][slab][e / 2] * w_scale, d[b][slab][4 * j + e], sum[slab][4 * j + e]);
        }
      }
    }
  }
}

}  // namespace hayate::ops::sm90
