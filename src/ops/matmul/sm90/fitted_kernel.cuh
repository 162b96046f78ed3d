#pragma once
// Computes   out[t, n] = Σ_k x[t, k] · w[n, k] · scales + bias[n]
//            or silu(gate) · up of it (fitted_fused_store.cuh)
// Layouts    x [T, K], w [N, K], K contiguous, bf16 or e4m3; out [T, N] bf16 or f32
// Tiles      kTileN features × kTileT tokens. The features are the rows of the matrix instructions
//            and the tokens their width, so that tiles fit the tokens to 32 and nothing is
//            multiplied that does not exist. Clusters of neighbouring features share the tokens by
//            multicast; or the blocks of a cluster take a half of K each, and exchange halves of
//            their sums through each other's shared memory.
// Roles      warpgroup 0: one thread issues bulk copies; the others: products of 64 features each,
//            and their store. Full barriers count bytes, empty ones warps.
// Resources  one block a multiprocessor and its shared memory
// Traffic    of the cache, a block of K: (kTileN + kTileT / kCluster) · 128 bytes a tile
// Requires   16-byte rows of x and w; two parts: two blocks of K and as many clusters as tiles

#include "ops/detail/sm90/cluster.cuh"
#include "ops/detail/sm90/wgmma.cuh"
#include "ops/matmul/sm90/fitted_fused_store.cuh"

namespace hayate::ops::sm90 {

// The stages of a block's tiles one after the other.
template <typename C>
class FittedStages {
 public:
  __device__ explicit FittedStages(const FittedParams& params)
      : tiles_(params), range_(params), k_(range_.end) {}

  __device__ bool Next() {
    if (++k_ < range_.end) return true;
    if (!tiles_.Next()) return false;
    k_ = range_.begin;
    return true;
  }
  __device__ int32_t k() const { return k_; }
  __device__ const FittedTiles<C>& tile() const { return tiles_; }

 private:
  FittedTiles<C> tiles_;
  const FittedRange<C> range_;
  int32_t k_;
};

template <typename C>
__device__ __forceinline__ void FetchWeights(const FittedParams& params,
                                             const FittedShared<C>& shared, uint32_t stage,
                                             const FittedStages<C>& at) {
  ArriveExpectBytes(shared.full(stage), C::kStageBytes);
  const int32_t column = at.k() * C::kBlockK, n = at.tile().n();
  if (params.gated) {
    Load4D(shared.w(stage), &params.w_map, shared.full(stage), column, 0, 0, n / 16);
  } else {
    Load2D(shared.w(stage), &params.w_map, shared.full(stage), column, n);
  }
}

template <typename C>
__device__ __forceinline__ void FetchTokens(const FittedParams& params,
                                            const FittedShared<C>& shared, uint32_t stage,
                                            const FittedStages<C>& at) {
  LoadRows<C::kCluster, C::kBoxT>(shared.x(stage), &params.x_map, shared.full(stage),
                                  at.k() * C::kBlockK, at.tile().t(), CacheHint::kNormal);
}

// One thread. Weights are of the model, so the first stages of them are fetched while earlier
// launches still compute x.
template <typename C>
__device__ void FetchTiles(const FittedParams& params, const FittedShared<C>& shared) {
  FittedStages<C> weights(params), tokens(params);
  uint32_t ahead = 0;
  while (ahead < C::kStages && weights.Next()) FetchWeights(params, shared, ahead++, weights);
  WaitForPriorLaunches();
  for (uint32_t stage = 0; stage < ahead; ++stage) {
    tokens.Next();
    FetchTokens(params, shared, stage, tokens);
  }
  if (ahead < C::kStages) return;
  RingState ring;
  while (weights.Next()) {
    Wait(shared.empty(ring.stage), ring.parity);
    FetchWeights(params, shared, ring.stage, weights);
    FetchTokens(params, shared, ring.stage, weights);
    ring.Advance<C::kStages>();
  }
}

// One warp of the consumers has read the stage.
template <typename C>
__device__ __forceinline__ void ReleaseFitted(const FittedShared<C>& shared, uint32_t stage) {
  const uint32_t lane = threadIdx.x % 32;
  if constexpr (C::kCluster == 1) {
    if (lane == 0) Arrive(shared.empty(stage));
  } else {
    if (lane < C::kCluster) ArriveRemote(shared.empty(stage), lane);
  }
}

// sum [64 features, kTileT] = the products of `blocks` blocks of K.
template <typename C>
__device__ __forceinline__ void MultiplyFitted(float (&sum)[C::kSums],
                                               const FittedShared<C>& shared, RingState& ring,
                                               int group, int32_t blocks) {
  uint32_t previous = 0;
  for (int32_t k = 0; k < blocks; ++k) {
    Wait(shared.full(ring.stage), ring.parity);
    WgmmaFence();
    const uint64_t w = SharedOperand(shared.w(ring.stage) + group * 64 * kRowBytes);
    const uint64_t x = SharedOperand(shared.x(ring.stage));
#pragma unroll
    for (int step = 0; step < C::kStepsPerBlock; ++step) {
      const int accumulate = k > 0 || step > 0;
      if constexpr (C::kFp8) {
        Wgmma<C::kTileT>::E4M3(sum, w + 2 * step, x + 2 * step, accumulate);
      } else {
        Wgmma<C::kTileT>::Bf16(sum, w + 2 * step, x + 2 * step, accumulate);
      }
    }
    WgmmaCommit();
    if (k > 0) {
      WgmmaWait<1>();
      ReleaseFitted<C>(shared, previous);
    }
    previous = ring.stage;
    ring.Advance<C::kStages>();
  }
  WgmmaWait<0>();
  ReleaseFitted<C>(shared, previous);
}

template <typename C>
__device__ __forceinline__ void StorePart(const FittedParams& params, const FittedBox<C>& box,
                                          const FittedScales<C>& scales,
                                          const float (&d)[C::kStoreSums], const FittedPart& part) {
  if (params.gated) {
    StoreGatedPart<C>(params, box, scales, d, part);
  } else if (params.bulk_stores) {
    StoreThroughBox<C>(params, box, scales, d, part);
  } else {
    StoreElements<C>(params, scales, d, part);
  }
}

// Two parts: `mine` becomes the sums of both of this block's half of the tokens. All threads of the
// pair synchronise twice with it.
template <typename C>
__device__ __forceinline__ void ExchangeHalves(float (&mine)[C::kSums / 2],
                                               const float (&sum)[C::kSums],
                                               const FittedShared<C>& shared) {
  constexpr int kHalf = C::kSums / 2;
  const uint32_t rank = ClusterRank();
  const int thread = static_cast<int>(threadIdx.x) - 128;
  ClusterSync();  // the other block's ring is not in use any more
  float4* const other = InBlock(shared.exchange(), rank ^ 1) + thread;
#pragma unroll
  for (int i = 0; i < kHalf; i += 4) {
    float sent[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      sent[e] = rank == 0 ? sum[kHalf + i + e] : sum[i + e];
      mine[i + e] = rank == 0 ? sum[i + e] : sum[kHalf + i + e];
    }
    other[i / 4 * C::kConsumerThreads] = make_float4(sent[0], sent[1], sent[2], sent[3]);
  }
  ClusterSync();
  const float4* const got = shared.exchange() + thread;
#pragma unroll
  for (int i = 0; i < kHalf; i += 4) {
    const float4 more = got[i / 4 * C::kConsumerThreads];
    mine[i] += more.x;
    mine[i + 1] += more.y;
    mine[i + 2] += more.z;
    mine[i + 3] += more.w;
  }
}

template <typename C>
__device__ void ComputeTiles(const FittedParams& params, const FittedShared<C>& shared, int group) {
  const FittedRange<C> range(params);
  const int32_t row = group * 64 + static_cast<int32_t>(threadIdx.x) % 128 / 32 * 16 +
                      static_cast<int32_t>(threadIdx.x) % 32 / 4;
  FittedTiles<C> tile(params);
  const FittedBox<C> box(shared, group);
  RingState ring;
  while (tile.Next()) {
    FittedScales<C> scales;
    scales.Load(params, tile.t(), tile.n() + row);
    float sum[C::kSums];
    MultiplyFitted<C>(sum, shared, ring, group, range.end - range.begin);
    FittedPart part{.t0 = tile.t(), .octet = 0, .n = tile.n() + group * 64};
    if constexpr (C::kParts == 1) {
      StorePart<C>(params, box, scales, sum, part);
    } else {
      part.octet = static_cast<int>(ClusterRank()) * C::kStoreOctets;
      float mine[C::kStoreSums];
      ExchangeHalves<C>(mine, sum, shared);
      StorePart<C>(params, box, scales, mine, part);
    }
  }
  box.End();
}

template <typename C>
__global__ void __launch_bounds__(C::kThreads, 1)
    FittedKernel(const __grid_constant__ FittedParams params) {
  extern __shared__ uint8_t raw[];
  const FittedShared<C> shared(raw);
  if (threadIdx.x == 0) {
    PrefetchTensorMap(&params.w_map);
    PrefetchTensorMap(&params.x_map);
    shared.InitBarriers();
  }
  ClusterSync();
  if (threadIdx.x < 128) {
    LowerRegisters<C::kFetchRegisters>();
    if (threadIdx.x == 0) FetchTiles<C>(params, shared);
    __syncwarp();
    if constexpr (C::kParts == 2) {
      ClusterSync();
      ClusterSync();
    }
  } else {
    RaiseRegisters<C::kSumRegisters>();
    WaitForPriorLaunches();
    if (params.next_early) AllowNextLaunch();
    ComputeTiles<C>(params, shared, static_cast<int>(threadIdx.x) / 128 - 1);
  }
  // A block's shared memory is written by its partners until all are done.
  ClusterSync();
}

}  // namespace hayate::ops::sm90
