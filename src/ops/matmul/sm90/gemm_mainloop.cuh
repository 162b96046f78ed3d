#pragma once
// A warpgroup's part of one tile: the products of its stages.

#include "ops/detail/sm90/wgmma.cuh"
#include "ops/matmul/sm90/gemm_pipeline.cuh"

namespace hayate::ops::sm90 {

template <typename C>
using Slabs = float[C::kSlabs][C::kRegs];

// Queues the products of one slab over one stage.
template <typename C>
__device__ __forceinline__ void MultiplySlab(float (&d)[C::kRegs], const GemmShared<C>& shared,
                                             uint32_t stage, int slab_of_tile, int accumulate) {
  const uint8_t* rows = C::kWeightsFirst ? shared.w(stage) : shared.x(stage);
  const uint8_t* columns = C::kWeightsFirst ? shared.x(stage) : shared.w(stage);
  const uint64_t a = SharedOperand(rows + slab_of_tile * 64 * kRowBytes);
  const uint64_t b = SharedOperand(columns);
#pragma unroll
  for (int step = 0; step < C::kStepsPerStage; ++step) {
    if constexpr (C::kFp8) {
      Wgmma<C::kWidth>::E4M3(d, a + 2 * step, b + 2 * step, accumulate | (step > 0));
    } else {
      Wgmma<C::kWidth>::Bf16(d, a + 2 * step, b + 2 * step, accumulate | (step > 0));
    }
  }
}

// sum[slab] = Σ over the stages of `work`, in the tensor cores' accumulators.
template <typename C>
__device__ __forceinline__ void MultiplyPlain(Slabs<C>& sum, const GemmShared<C>& shared,
                                              RingState& ring, int group, const GemmWork& work) {
  uint32_t previous = 0;
  for (int32_t k = work.begin; k < work.end; ++k) {
    Wait(shared.full(ring.stage), ring.parity);
    WgmmaFence();
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; ++slab) {
      MultiplySlab<C>(sum[slab], shared, ring.stage, group * C::kSlabs + slab, k > work.begin);
    }
    WgmmaCommit();
    if (k > work.begin) {
      WgmmaWait<1>();
      ReleaseStage<C>(shared, previous);
    }
    previous = ring.stage;
    ring.Advance<C::kStages>();
  }
  WgmmaWait<0>();
  ReleaseStage<C>(shared, previous);
}

// The scales of the weights of a slab at stage k, one for every 64 columns of out where tokens are
// the rows, else one for the slab.
template <typename C>
struct WeightScales {
  static constexpr int kCount = C::kWeightsFirst ? C::kSlabs
                                : C::kTileN % kScaleColumns == 0
                                    ? C::kTileN / static_cast<int>(kScaleColumns)
                                    : C::kTileN / 64;
  static constexpr int kSpan = C::kWeightsFirst ? 64 : C::kTileN / kCount;  // features of one
  float values[kCount];

  __device__ __forceinline__ void Load(const GemmParams& params, int n0, int32_t k) {
    const int last = (params.n - 1) / static_cast<int>(kScaleColumns);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int row = (n0 + i * kSpan) / static_cast<int>(kScaleColumns);
      values[i] =
          __ldg(params.w_scale + static_cast<int64_t>(min(row, last)) * params.k_blocks + k);
    }
  }
};

// sum[slab] += scales · d, the products of one stage. `x_scales` are those of the stage's rows of
// x.
template <typename C>
__device__ __forceinline__ void Promote(float (&sum)[C::kRegs], const float (&d)[C::kRegs],
                                        const WeightScales<C>& w, const float* x_scales,
                                        const float (&row_scales)[2], int slab) {
  const int c = threadIdx.x % 4;
#pragma unroll
  for (int j = 0; j < C::kWidth / 8; ++j) {
    float scale[4];
    if constexpr (C::kWeightsFirst) {
      const float2 x = *reinterpret_cast<const float2*>(x_scales + 8 * j + 2 * c);
      scale[0] = scale[2] = x.x * w.values[slab];
      scale[1] = scale[3] = x.y * w.values[slab];
    } else {
      const float w_scale = w.values[8 * j / WeightScales<C>::kSpan];
      scale[0] = scale[1] = row_scales[0] * w_scale;
      scale[2] = scale[3] = row_scales[1] * w_scale;
    }
#pragma unroll
    for (int e = 0; e < 4; ++e) sum[4 * j + e] = fmaf(scale[e], d[4 * j + e], sum[4 * j + e]);
  }
}

// sum[slab] = Σ over the stages of `work` of scale · (the stage's exact-scale products): each 128
// of K leave the tensor cores, whose fp8 sums keep about 14 bits, for fp32.
template <typename C>
__device__ __forceinline__ void MultiplyScaled(Slabs<C>& sum, const GemmParams& params,
                                               const GemmShared<C>& shared, RingState& ring,
                                               int group, const GemmWork& work) {
  const int first_slab = group * C::kSlabs;
  const int n0 = work.tile_n * C::kTileN + (C::kWeightsFirst ? first_slab * 64 : 0);
  const int row = threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
  for (int slab = 0; slab < C::kSlabs; ++slab) {
#pragma unroll
    for (int i = 0; i < C::kRegs; ++i) sum[slab][i] = 0.0f;
  }
  WeightScales<C> next;
  next.Load(params, n0, work.begin);
  for (int32_t k = work.begin; k < work.end; ++k) {
    const WeightScales<C> w = next;
    if (k + 1 < work.end) next.Load(params, n0, k + 1);
    Wait(shared.full(ring.stage), ring.parity);
    const float* x_scales = shared.scales(ring.stage);
    float row_scales[C::kSlabs][2] = {};
    if constexpr (!C::kWeightsFirst) {
#pragma unroll
      for (int slab = 0; slab < C::kSlabs; ++slab) {
        row_scales[slab][0] = x_scales[(first_slab + slab) * 64 + row];
        row_scales[slab][1] = x_scales[(first_slab + slab) * 64 + row + 8];
      }
    }
    Slabs<C> d;
    WgmmaFence();
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; ++slab) {
      MultiplySlab<C>(d[slab], shared, ring.stage, first_slab + slab, 0);
      WgmmaCommit();
    }
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; ++slab) {
      if (slab + 1 < C::kSlabs) {
        WgmmaWait<C::kSlabs - 1>();
      } else {
        WgmmaWait<0>();
        if constexpr (!C::kWeightsFirst) ReleaseStage<C>(shared, ring.stage);
      }
      Promote<C>(sum[slab], d[slab], w, x_scales, row_scales[slab], slab);
    }
    if constexpr (C::kWeightsFirst) ReleaseStage<C>(shared, ring.stage);
    ring.Advance<C::kStages>();
  }
}

}  // namespace hayate::ops::sm90
