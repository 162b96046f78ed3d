#pragma once
// The ring of stages between the copy engine and the tensor cores, and the thread that fills it. A
// stage holds 128 bytes along K of kTileN rows of weights and of kTileT rows of x, both swizzled,
// and under kBlock the scales of those rows of x.

#include "ops/detail/sm90/launch.cuh"
#include "ops/detail/sm90/tma.cuh"
#include "ops/matmul/sm90/gemm_schedule.cuh"

namespace hayate::ops::sm90 {

template <typename C>
struct GemmShared {
  uint8_t* base;  // 1024-byte aligned

  __device__ explicit GemmShared(uint8_t* raw)
      : base(raw + (1024 - SharedAddress(raw) % 1024) % 1024) {}
  __device__ uint8_t* w(uint32_t stage) const { return base + stage * C::kBytesW; }
  __device__ uint8_t* x(uint32_t stage) const {
    return base + C::kStages * C::kBytesW + stage * C::kBytesX;
  }
  __device__ float* scales(uint32_t stage) const {
    return reinterpret_cast<float*>(base + C::kStages * (C::kBytesW + C::kBytesX) +
                                    stage * C::kScalePitch);
  }
  __device__ Barrier* full(uint32_t stage) const {
    return reinterpret_cast<Barrier*>(base +
                                      C::kStages * (C::kBytesW + C::kBytesX + C::kScalePitch)) +
           stage;
  }
  __device__ Barrier* empty(uint32_t stage) const { return full(stage) + C::kStages; }

  // One thread. A stage is empty when every consumer warp of every block that receives it says so.
  __device__ void InitBarriers() const {
    for (uint32_t stage = 0; stage < C::kStages; ++stage) {
      InitBarrier(full(stage), 1);
      InitBarrier(empty(stage), C::kConsumerThreads / 32 * C::kCluster);
    }
    FenceBarrierInit();
  }
};

template <typename C>
using GemmSchedule = std::conditional_t<C::kWeightsFirst, EvenRuns, WholeTiles<C::kCluster>>;

// The stages of a block's work one after the other.
template <typename C>
class StageWalk {
 public:
  __device__ explicit StageWalk(const GemmParams& params) : schedule_(params) {}

  __device__ bool Next() {
    if (++k_ < work_.end) return true;
    if (!schedule_.Next(&work_)) return false;
    k_ = work_.begin;
    return true;
  }
  __device__ int32_t k() const { return k_; }
  __device__ const GemmWork& work() const { return work_; }

 private:
  GemmSchedule<C> schedule_;
  GemmWork work_{0, 0, 0, 0};
  int32_t k_ = 0;
};

template <typename C>
__device__ void LoadWeights(const GemmParams& params, const GemmShared<C>& shared, uint32_t stage,
                            const StageWalk<C>& walk) {
  const int32_t column = walk.k() * C::kStageK, row = walk.work().tile_n * C::kTileN;
  ArriveExpectBytes(shared.full(stage), C::kStageBytes);
  if constexpr (C::kCluster == 1) {
    Load2D(shared.w(stage), &params.w_map, shared.full(stage), column, row,
           C::kWeightsFirst ? CacheHint::kEvictFirst : CacheHint::kNormal);
  } else {
    const uint32_t rank = ClusterRank();
    Load2DMulticast(shared.w(stage) + rank * C::kBoxN * kRowBytes, &params.w_map,
                    shared.full(stage), column, row + rank * C::kBoxN, (1 << C::kCluster) - 1);
  }
}

template <typename C>
__device__ void LoadTokens(const GemmParams& params, const GemmShared<C>& shared, uint32_t stage,
                           const StageWalk<C>& walk) {
  const int32_t tile = walk.work().tile_t;
  Load2D(shared.x(stage), &params.x_map, shared.full(stage), walk.k() * C::kStageK,
         tile * C::kTileT, C::kWeightsFirst ? CacheHint::kEvictLast : CacheHint::kNormal);
  if constexpr (C::kPromote) {
    // The last pair of a cluster may have a tile past the end: any scales will do.
    const int32_t inside = tile < params.tiles_t ? tile : params.tiles_t - 1;
    LoadBytes(shared.scales(stage),
              params.x_scale + walk.k() * params.x_scale_stride + inside * C::kTileT,
              shared.full(stage), C::kBytesScale);
  }
}

// One thread. Weights are of the model, so the first stages of them are fetched while earlier
// launches still compute x.
template <typename C>
__device__ void Produce(const GemmParams& params, const GemmShared<C>& shared) {
  StageWalk<C> weights(params), tokens(params);
  uint32_t ahead = 0;
  while (ahead < C::kStages && weights.Next()) LoadWeights(params, shared, ahead++, weights);
  WaitForPriorLaunches();
  for (uint32_t stage = 0; stage < ahead; ++stage) {
    tokens.Next();
    LoadTokens(params, shared, stage, tokens);
  }
  if (ahead < C::kStages) return;
  RingState ring;
  while (weights.Next()) {
    Wait(shared.empty(ring.stage), ring.parity);
    LoadWeights(params, shared, ring.stage, weights);
    LoadTokens(params, shared, ring.stage, weights);
    ring.Advance<C::kStages>();
  }
}

// One warp of the consumers has read the stage.
template <typename C>
__device__ __forceinline__ void ReleaseStage(const GemmShared<C>& shared, uint32_t stage) {
  const uint32_t lane = threadIdx.x % 32;
  if constexpr (C::kCluster == 1) {
    if (lane == 0) Arrive(shared.empty(stage));
  } else {
    if (lane < C::kCluster) ArriveRemote(shared.empty(stage), lane);
  }
}

}  // namespace hayate::ops::sm90
