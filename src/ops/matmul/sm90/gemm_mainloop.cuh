#pragma once
// A warpgroup's part of one tile: the products of all of the block's stages of K.

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
        t(C::kSplitT ? index * C::kSlabs * 64 : 0),
        n(C::kSplitT || C::kSplitK ? 0 : index * C::kWidth) {}
  __device__ int Block(int i) const { return C::kSplitK ? kConsumerGroups * i + group : i; }
};

// Where the tensor cores find a group's operands in the first stage of the ring: the low words of
// descriptors, which hold addresses in units of 16 bytes. The high words are the same for all.
template <typename C>
class GroupOperands {
 public:
  __device__ GroupOperands(const GemmShared<C>& shared, const GroupOrigin<C>& origin)
      : x_(Low(shared.x(0, 0) + origin.t * kRowBytes)),
        w_(Low(shared.w(0, 0) + origin.n * kRowBytes)),
        x_block_(static_cast<uint32_t>(shared.x_rows) * (kRowBytes / 16)) {}

  // Queues the products of one slab over one block of K of a stage.
  __device__ __forceinline__ void Multiply(float (&d)[C::kRegs], uint32_t stage, int block,
                                           int slab, int accumulate) const {
    const uint32_t slot = stage * C::kBlocks + static_cast<uint32_t>(block);
    const uint32_t x = x_ + stage * (C::kBlocks * C::kBlockBytesX / 16) +
                       static_cast<uint32_t>(block) * x_block_ + slab * (64 * kRowBytes / 16);
    const uint32_t w = w_ + slot * (C::kBlockBytesW / 16);
#pragma unroll
    for (int step = 0; step < C::kStepsPerBlock; ++step) {
      const uint64_t a = Descriptor(x + 2 * step), b = Descriptor(w + 2 * step);
      if constexpr (C::kFp8) {
        Wgmma<C::kWidth>::E4M3(d, a, b, accumulate | (step > 0));
      } else {
        Wgmma<C::kWidth>::Bf16(d, a, b, accumulate | (step > 0));
      }
    }
  }

 private:
  // The same in all lanes, and known to be.
  static __device__ __forceinline__ uint32_t Low(const uint8_t* shared) {
    return __shfl_sync(0xffffffff, static_cast<uint32_t>(SharedOperand(shared)), 0);
  }
  static __device__ __forceinline__ uint64_t Descriptor(uint32_t low) {
    constexpr uint64_t kHigh = (uint64_t{1} << 62) | (uint64_t{1024 >> 4} << 32);  // SharedOperand
    return kHigh | low;
  }

  const uint32_t x_, w_;
  const uint32_t x_block_;  // from one block of K of x to the next one
};

// The sums stay in the tensor cores' accumulators.
template <typename C>
__device__ __forceinline__ void MultiplyPlain(Slabs<C>& sum, const GemmParams& params,
                                              const GemmShared<C>& shared, RingState& ring,
                                              const GroupOrigin<C>& origin) {
  const GroupOperands<C> operands(shared, origin);
  const int32_t k_blocks = GemmRange<C>(params).blocks();
  uint32_t previous = 0;
  for (int32_t k = 0; k < k_blocks; k += C::kBlocks) {
    Wait(shared.full(ring.stage), ring.parity);
    WgmmaFence();
#pragma unroll
    for (int i = 0; i < C::kGroupBlocks; ++i) {
#pragma unroll
      for (int slab = 0; slab < C::kSlabs; ++slab) {
        operands.Multiply(sum[slab], ring.stage, origin.Block(i), slab, k + i > 0);
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
  static constexpr bool kOne = kScaleRows % C::kWidth == 0;
  static constexpr int kCount = kOne ? 1 : C::kNarrow ? 2 : C::kTileN / 64;
  float values[C::kGroupBlocks][kCount];

  // `n0` is the group's first feature; `first` the first scale that the stage holds.
  __device__ __forceinline__ void Load(const GemmShared<C>& shared, uint32_t stage,
                                       const GroupOrigin<C>& origin, int n0, int first) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int row = C::kNarrow ? n0 / kScaleRows + i : (n0 + i * 64) / kScaleRows;
#pragma unroll
      for (int b = 0; b < C::kGroupBlocks; ++b) {
        values[b][i] = shared.w_scales(stage, origin.Block(b))[min(row - first, kScalesW - 1)];
      }
    }
  }
  // Of features 8j … 8j + 7; `border` is the j at which the second scale begins (narrow).
  __device__ __forceinline__ float At(int block, int j, int border) const {
    if constexpr (kOne) return values[block][0];
    if constexpr (C::kNarrow) return j < border ? values[block][0] : values[block][1];
    return values[block][8 * j / 64];
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
  const GroupOperands<C> operands(shared, origin);
  const int32_t k_blocks = GemmRange<C>(params).blocks();
  const int border = 16 - n0 / 8 % 16;
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
  for (int32_t k = 0; k < k_blocks; k += C::kBlocks) {
    const StageScales<C> scales = next;
    const uint32_t stage = ring.stage;
    float d[C::kGroupBlocks][C::kSlabs][C::kRegs];
    WgmmaFence();
#pragma unroll
    for (int b = 0; b < C::kGroupBlocks; ++b) {
#pragma unroll
      for (int slab = 0; slab < C::kSlabs; ++slab) {
        operands.Multiply(d[b][slab], stage, origin.Block(b), slab, 0);
        WgmmaCommit();
      }
    }
    ring.Advance<C::kStages>();
    if (k + C::kBlocks < k_blocks) {
      Wait(shared.full(ring.stage), ring.parity);
      next.Load(shared, ring.stage, origin, n0, first_w, row);
    }
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const int b = group / C::kSlabs, slab = group % C::kSlabs;
      WaitForProducts(kGroups - 1 - group);
      PinRegisters(d[b][slab]);
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
      // Before the wait for the next ones: the tensor cores work on them meanwhile.
      PinRegisters(sum[slab]);
    }
  }
}

}  // namespace hayate::ops::sm90
