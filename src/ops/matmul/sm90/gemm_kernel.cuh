#pragma once
// Computes   out[t, n] = Σ_k x[t, k] · w[n, k] · scales + bias[n]
// Layouts    x [T, K], w [N, K], K contiguous, bf16 or e4m3; out [T, N] bf16 or f32
// Tiles      kTileT tokens × kTileN features, 128 bytes of K a stage. Weights first (few tokens):
//            A = weights, one block a multiprocessor, equal runs of stages (EvenRuns); a tile's
//            parts meet in `partials`. Tokens first: A = tokens, whole tiles (WholeTiles), pairs of
//            blocks share the weights by multicast.
// Roles      warpgroup 0: one thread issues bulk copies; warpgroups 1, 2: products, promotion and
//            the store of half the rows of A each. Full barriers count bytes, empty ones warps.
// Resources  one block a multiprocessor, all of its shared memory; 232 registers a consumer thread
// Traffic    weights first: N·K once + tiles_n · T · K from the cache; tokens first: see README.md
// Requires   16-byte rows of x and w; x_scale rows padded to kXScaleRows

#include "ops/matmul/sm90/gemm_epilogue.cuh"
#include "ops/matmul/sm90/gemm_partials.cuh"

namespace hayate::ops::sm90 {

template <typename C>
__device__ void Consume(const GemmParams& params, const GemmShared<C>& shared, int group) {
  GemmSchedule<C> schedule(params);
  RingState ring;
  GemmWork work;
  while (schedule.Next(&work)) {
    Slabs<C> sum;
    if constexpr (C::kPromote) {
      MultiplyScaled<C>(sum, params, shared, ring, group, work);
    } else {
      MultiplyPlain<C>(sum, shared, ring, group, work);
    }
    if constexpr (C::kWeightsFirst) {
      if (work.begin > 0) {
        PutPartial<C>(params, sum);
        continue;
      }
      if (work.end < params.k_blocks) GatherPartials<C>(params, sum, work);
    }
    const int t0 = work.tile_t * C::kTileT, n0 = work.tile_n * C::kTileN;
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; ++slab) {
      const int row = (group * C::kSlabs + slab) * 64;
      if constexpr (C::kWeightsFirst) {
        StoreFeatureSlab<C>(params, sum[slab], t0, n0 + row);
      } else {
        StoreTokenSlab<C>(params, sum[slab], t0 + row, n0);
      }
    }
  }
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    GemmKernel(const __grid_constant__ GemmParams params) {
  extern __shared__ uint8_t raw[];
  const GemmShared<C> shared(raw);
  if (threadIdx.x == 0) {
    PrefetchTensorMap(&params.w_map);
    PrefetchTensorMap(&params.x_map);
    shared.InitBarriers();
  }
  if constexpr (C::kCluster > 1) {
    ClusterSync();
  } else {
    __syncthreads();
  }
  AllowNextLaunch();
  if (threadIdx.x < 128) {
    LowerRegisters<40>();
    if (threadIdx.x == 0) Produce<C>(params, shared);
  } else {
    RaiseRegisters<232>();
    WaitForPriorLaunches();
    Consume<C>(params, shared, static_cast<int>(threadIdx.x) / 128 - 1);
  }
  // A block's shared memory is written by its partner until both are done.
  if constexpr (C::kCluster > 1) ClusterSync();
}

}  // namespace hayate::ops::sm90
