#pragma once
// A warpgroup's part of one wide tile under kBlock: 64 tokens after the other, slabs, through one
// set of products, so that sums of 128 × 128 outputs and the products find room in registers.

#include "ops/matmul/sm90/gemm_mainloop.cuh"

namespace hayate::ops::sm90 {

// Of groups with one slab: they take turns to queue products, so that one promotes while the tensor
// cores work for the other. Left alone both would queue together, wait together and leave the
// tensor cores idle together. Groups of two slabs alternate often enough by themselves.
template <typename C>
class Turns {
 public:
  __device__ explicit Turns(int group)
      : own_(kFirstBarrier + group), other_(kFirstBarrier + 1 - group) {
    if (kUsed && group == 1) ArriveThreads(other_, C::kConsumerThreads);
  }
  __device__ __forceinline__ void Wait() const {
    if (kUsed) SyncThreads(own_, C::kConsumerThreads);
  }
  __device__ __forceinline__ void Pass() const {
    if (kUsed) ArriveThreads(other_, C::kConsumerThreads);
  }
  // Takes the turn that is left over.
  __device__ void End(int group) const {
    if (kUsed && group == 0) SyncThreads(own_, C::kConsumerThreads);
  }

 private:
  static constexpr bool kUsed = C::kPromote && !C::kNarrow && C::kSlabs == 1;
  static constexpr int kFirstBarrier = 1;
  const int own_, other_;
};

// sum = Σ scales · products of every 128 of K: they leave the tensor cores, whose fp8 sums keep
// about 14 bits, for fp32. A slab's scales are read while its products run.
template <typename C>
__device__ __forceinline__ void MultiplyScaledWide(Slabs<C>& sum, const GemmParams& params,
                                                   const GemmShared<C>& shared, RingState& ring,
                                                   const GroupOrigin<C>& origin,
                                                   const Turns<C>& turns, const GemmWork& work) {
  static_assert(C::kBlocks == 1);
  const GroupOperands<C> operands(shared, origin);
  const int n0 = work.tile_n * C::kTileN, first_w = FirstScale(params, n0);
  const int row = origin.t + static_cast<int>(threadIdx.x) % 128 / 32 * 16 +
                  static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
  for (int slab = 0; slab < C::kSlabs; ++slab) {
#pragma unroll
    for (int i = 0; i < C::kRegs; ++i) sum[slab][i] = 0.0f;
  }
  Wait(shared.full(ring.stage), ring.parity);
  for (int32_t k = 0; k < params.k_blocks; ++k) {
    const uint32_t stage = ring.stage;
    WeightScales<C> w_scales;
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; ++slab) {
      const bool last = slab == C::kSlabs - 1;
      float d[C::kRegs];
      turns.Wait();
      WgmmaFence();
      operands.Multiply(d, stage, 0, slab, 0);
      WgmmaCommit();
      turns.Pass();
      if (slab == 0) w_scales.Load(shared, stage, origin, n0, first_w);
      const float* x_scales = shared.x_scales(stage, 0) + slab * 64 + row;
      const float x_scale[2] = {x_scales[0], x_scales[8]};
      if (last) {
        ring.Advance<C::kStages>();
        if (k + 1 < params.k_blocks) Wait(shared.full(ring.stage), ring.parity);
      }
      WgmmaWait<0>();
      if (last) ReleaseStage<C>(shared, stage);
#pragma unroll
      for (int i = 0; i < C::kRegs; ++i) {
        sum[slab][i] = fmaf(x_scale[i % 4 / 2] * w_scales.At(0, i / 4, 0), d[i], sum[slab][i]);
      }
    }
  }
}

}  // namespace hayate::ops::sm90
