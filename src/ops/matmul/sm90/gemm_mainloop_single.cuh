#pragma once
// A warpgroup's part of the wide tiles of a block under kBlock where all tokens are one tile: 64
// tokens and all of its features. Weights are most of what is read, and no multiprocessor should
// stop reading them between tiles.

#include "ops/matmul/sm90/gemm_mainloop_wide.cuh"

namespace hayate::ops::sm90 {

// The scales of a block of K that a thread needs. Those of weights change every 128 features, in a
// tile at most once, at a multiple of 8.
template <typename C>
class SingleScales {
 public:
  __device__ explicit SingleScales(int row) : row_(row) {}

  // Of the tile whose first feature is n0.
  __device__ __forceinline__ void Load(const GemmParams& params, const GemmShared<C>& shared,
                                       uint32_t stage, int n0) {
    const int first = n0 / kFeatures - FirstScale(params, n0);
#pragma unroll
    for (int i = 0; i < kCount; ++i) w_[i] = shared.w_scales(stage, 0)[min(first + i, 7)];
    if (kCount > 1) border_ = kFeatures / 8 - n0 / 8 % (kFeatures / 8);
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; ++slab) {
      const float* x = shared.x_scales(stage, 0) + slab * 64 + row_;
      x_[slab][0] = x[0];
      x_[slab][1] = x[8];
    }
  }
  __device__ __forceinline__ void Add(float (&sum)[C::kRegs], const float (&d)[C::kRegs],
                                      int slab) const {
    float scales[kCount][2];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      scales[i][0] = x_[slab][0] * w_[i];
      scales[i][1] = x_[slab][1] * w_[i];
    }
#pragma unroll
    for (int j = 0; j < C::kRegs / 4; ++j) {
      const bool second = kCount > 1 && j >= border_;
      const float low = second ? scales[kCount - 1][0] : scales[0][0];
      const float high = second ? scales[kCount - 1][1] : scales[0][1];
      sum[4 * j] = fmaf(low, d[4 * j], sum[4 * j]);
      sum[4 * j + 1] = fmaf(low, d[4 * j + 1], sum[4 * j + 1]);
      sum[4 * j + 2] = fmaf(high, d[4 * j + 2], sum[4 * j + 2]);
      sum[4 * j + 3] = fmaf(high, d[4 * j + 3], sum[4 * j + 3]);
    }
  }

 private:
  static constexpr int kFeatures = static_cast<int>(kScaleColumns);
  static constexpr int kCount = kFeatures % C::kTileN == 0 ? 1 : 2;
  const int row_;  // of the first of a slab's two, in the tile
  float w_[kCount], x_[C::kSlabs][2];
  int border_ = 0;  // the eights of features before the second scale
};

// All tiles of a block; the first products of the next tile run while one is stored. sum = Σ scales
// · products of every 128 of K. They leave the tensor cores, whose fp8 sums keep about 14 bits, for
// fp32.
template <typename C, typename Store>
__device__ void ConsumeScaledSingle(const GemmParams& params, const GemmShared<C>& shared,
                                    const GroupOrigin<C>& origin, Store& store) {
  static_assert(C::kBlocks == 1);
  constexpr int kLast = C::kSlabs - 1;
  GemmSchedule<C> schedule(params);
  const GroupOperands<C> operands(shared, origin);
  SingleScales<C> scales(origin.t + static_cast<int>(threadIdx.x) % 128 / 32 * 16 +
                         static_cast<int>(threadIdx.x) % 32 / 4);
  RingState ring;
  Slabs<C> sum;
  float d[C::kRegs];
  const auto multiply = [&](int slab) {
    WgmmaFence();
    operands.Multiply(d, __shfl_sync(0xffffffff, ring.stage, 0), slab);
    WgmmaCommit();
  };
  const auto add_but_last = [&](const auto& after) {
#pragma unroll
    for (int slab = 0; slab < kLast; ++slab) {
      WgmmaWait<0>();
      scales.Add(sum[slab], d, slab);
      multiply(slab + 1);
      after(slab);
    }
    WgmmaWait<0>();
    ReleaseStage<C>(shared, ring.stage);
    ring.Advance<C::kStages>();
  };
  const auto leave = [&](int slab, const GemmWork& tile) {
    store.Slab(params, sum[slab], slab, tile.tile_t * C::kTileT + origin.t,
               (tile.tile_t + 1) * C::kTileT, tile.tile_n * C::kTileN);
  };
  GemmWork work, done{-1, -1};
  while (schedule.Next(&work)) {
    const int n0 = work.tile_n * C::kTileN;
    Wait(shared.full(ring.stage), ring.parity);
    multiply(0);
    scales.Load(params, shared, ring.stage, n0);
    if (done.tile_t >= 0) leave(kLast, done);
    done = work;
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; ++slab) {
#pragma unroll
      for (int i = 0; i < C::kRegs; ++i) sum[slab][i] = 0.0f;
    }
    for (int32_t k = params.k_blocks - 1; k > 0; --k) {
      add_but_last([](int) {});
      const bool ready = TryWait(shared.full(ring.stage), ring.parity);
      scales.Add(sum[kLast], d, kLast);
      if (!ready) Wait(shared.full(ring.stage), ring.parity);
      multiply(0);
      scales.Load(params, shared, ring.stage, n0);
    }
    add_but_last([&](int slab) { leave(slab, work); });
    scales.Add(sum[kLast], d, kLast);
  }
  if (done.tile_t >= 0) leave(kLast, done);
}

}  // namespace hayate::ops::sm90
