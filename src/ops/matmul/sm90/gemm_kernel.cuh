#pragma once
// Computes   out[t, n] = Σ_k x[t, k] · w[n, k] · scales + bias[n]
// Layouts    x [T, K], w [N, K], K contiguous, bf16 or e4m3; out [T, N] bf16 or f32
// Tiles      kTileT tokens × kTileN features through all of K; in which order they are summed says
//            gemm.h. Narrow (few tokens): tiles are as narrow as it takes to give every
//            multiprocessor the same share of the weights; the two consumer groups split the
//            features, 128 tokens, or the blocks of K; clusters share x by multicast, or its two
//            blocks take a half of K each of one tile twice as wide. Wide (many tokens): 128 or 256
//            tokens; the groups split the tokens; clusters share the larger operand.
// Roles      warpgroup 0: one thread issues bulk copies; warpgroups 1, 2: products, promotion and
//            the store of their half. Full barriers count bytes, empty ones warps.
// Resources  one block a multiprocessor and its shared memory; 232 registers a consumer thread,
//            slim tiles 80
// Traffic    narrow: N·K from memory, T·K·tiles_n / cluster from the cache; wide: README.md
// Requires   16-byte rows of x and w; x_scale rows padded to kXScaleRows; two parts: more than one
//            stage of K and as many clusters as tiles

#include "ops/matmul/sm90/gemm_exchange.cuh"
#include "ops/matmul/sm90/gemm_fused_store.cuh"
#include "ops/matmul/sm90/gemm_mainloop_wide.cuh"
#include "ops/matmul/sm90/gemm_skinny.cuh"

namespace hayate::ops::sm90 {

// From the sums of a tile to out.
template <typename C>
class TileStore {
 public:
  __device__ explicit TileStore(const GemmShared<C>& shared) : boxes_(shared), fused_(shared) {}

  // Before the products of the tile.
  __device__ __forceinline__ void Begin(const GemmParams& params, int t0, int n0) {
    if constexpr (!C::kNarrow) scales_.Load(params, t0, n0);
    if constexpr (C::kCanNorm) fused_.Begin(params, t0, n0);
  }
  // After them. Tokens end at t_end.
  __device__ __forceinline__ void Tile(const GemmParams& params, Slabs<C>& sum, int t0, int t_end,
                                       int n0) {
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; ++slab) {
      if constexpr (!C::kNarrow) {
        if (params.bulk_stores) {
          boxes_.Slab(params, scales_, sum[slab], slab, t0, n0);
          continue;
        }
      }
      if constexpr (C::kCanGate) {
        if (fused_.Slab(params, sum[slab], t0 + slab * 64, t_end, n0)) continue;
      }
      StoreSlab<C>(params, sum[slab], t0 + slab * 64, t_end, n0, fused_.RowScale(params));
    }
  }
  __device__ void End() const {
    if constexpr (!C::kNarrow) boxes_.End();
  }

 private:
  struct Nothing {
    Nothing() = default;
    __device__ explicit Nothing(const GemmShared<C>&) {}
  };
  std::conditional_t<C::kNarrow, Nothing, BoxStore<C>> boxes_;
  std::conditional_t<C::kNarrow, Nothing, TileScales<C>> scales_;
  FusedStore<C> fused_;
};

template <typename C>
__device__ void Consume(const GemmParams& params, const GemmShared<C>& shared, int group) {
  GemmSchedule<C> schedule(params);
  const GroupOrigin<C> origin(group);
  const Turns<C> turns(group);
  SumExchange<C> exchange(shared, group);
  TileStore<C> store(shared);
  RingState ring;
  GemmWork work;
  while (schedule.Next(&work)) {
    const int t0 = work.tile_t * C::kTileT + origin.t, n0 = work.tile_n * C::kTileN + origin.n;
    store.Begin(params, t0, n0);
    Slabs<C> sum;
    if constexpr (C::kPromote && C::kNarrow) {
      MultiplyScaled<C>(sum, params, shared, ring, origin, work);
    } else if constexpr (C::kPromote) {
      MultiplyScaledWide<C>(sum, params, shared, ring, origin, turns, work);
    } else if constexpr (C::kSkinny) {
      MultiplySkinny<C>(sum, params, shared, ring, origin);
    } else {
      MultiplyPlain<C>(sum, params, shared, ring, origin);
    }
    if constexpr (C::kParts == 2) {
      if (!JoinParts<C>(sum, shared, group)) continue;
    } else {
      if (!exchange.Join(sum)) continue;
    }
    store.Tile(params, sum, t0, (work.tile_t + 1) * C::kTileT, n0);
  }
  turns.End(group);
  store.End();
  exchange.End();
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, C::kSlim ? 2 : 1)
    GemmKernel(const __grid_constant__ GemmParams params) {
  extern __shared__ uint8_t raw[];
  const GemmShared<C> shared(raw, params);
  if (threadIdx.x == 0) {
    PrefetchTensorMap(&params.w_map);
    PrefetchTensorMap(&params.x_map);
    shared.InitBarriers();
  }
  if constexpr (C::kClusterBlocks > 1) {
    ClusterSync();
  } else {
    __syncthreads();
  }
  if (threadIdx.x < 128) {
    if constexpr (!C::kSlim) LowerRegisters<40>();
    if (threadIdx.x == 0) Produce<C>(params, shared);
    if constexpr (C::kCanNorm) {
      if (threadIdx.x >= 32 && params.x_squares != nullptr) ScaleRows<C>(params, shared);
    }
    if constexpr (C::kParts == 2) {
      __syncwarp();
      ClusterSync();  // that of JoinParts
    }
  } else {
    if constexpr (!C::kSlim) RaiseRegisters<232>();
    WaitForPriorLaunches();
    if (params.t <= kMaxTokensBeside) AllowNextLaunch();
    Consume<C>(params, shared, static_cast<int>(threadIdx.x) / 128 - 1);
  }
  // A block's ring is written by its partners until all are done.
  if constexpr (C::kCluster > 1) ClusterSync();
}

}  // namespace hayate::ops::sm90
