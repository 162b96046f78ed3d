#pragma once
// Shared memory of a block, and the tiles that it computes.

#include "ops/matmul/sm90/fitted_config.cuh"
#include "ops/matmul/sm90/gemm_pipeline.cuh"

namespace hayate::ops::sm90 {

template <typename C>
struct FittedShared {
  uint8_t* base;  // 1024-byte aligned

  __device__ explicit FittedShared(uint8_t* raw)
      : base(raw + (1024 - SharedAddress(raw) % 1024) % 1024) {}
  __device__ uint8_t* w(uint32_t stage) const { return base + stage * C::kStageBytesW; }
  __device__ uint8_t* x(uint32_t stage) const {
    return base + C::kStages * C::kStageBytesW + stage * C::kStageBytesX;
  }
  // A box of kStoreTokens tokens × 64 features, swizzled.
  __device__ uint8_t* store(int group) const {
    return base + C::kStages * C::kStageBytes + group * C::kStoreBytes;
  }
  __device__ Barrier* full(uint32_t stage) const {
    return reinterpret_cast<Barrier*>(store(C::kGroups)) + stage;
  }
  __device__ Barrier* empty(uint32_t stage) const { return full(stage) + C::kStages; }
  // Of the other part, once no stage is in use: a float4 for each thread and eight tokens.
  __device__ float4* exchange() const { return reinterpret_cast<float4*>(base); }

  // One thread. A stage is empty when every consumer warp of every block that receives it says so.
  __device__ void InitBarriers() const {
    for (uint32_t stage = 0; stage < C::kStages; ++stage) {
      InitBarrier(full(stage), 1);
      InitBarrier(empty(stage), C::kConsumerThreads / 32 * C::kCluster);
    }
    FenceBarrierInit();
  }
};

// The tiles that a cluster computes: all of the tokens of its features, then the next features, so
// that clusters at work at one time read the same weights.
template <typename C>
class FittedTiles {
 public:
  __device__ explicit FittedTiles(const FittedParams& params)
      : params_(params), next_(static_cast<int32_t>(blockIdx.x) / C::kClusterBlocks) {}

  __device__ bool Next() {
    const int32_t groups_n = (params_.tiles_n + C::kCluster - 1) / C::kCluster;
    if (next_ >= groups_n * params_.tiles_t) return false;
    t_ = next_ % params_.tiles_t * C::kTileT;
    n_ = (next_ / params_.tiles_t * C::kCluster + static_cast<int32_t>(blockIdx.x) % C::kCluster) *
         C::kTileN;
    next_ += static_cast<int32_t>(gridDim.x) / C::kClusterBlocks;
    return true;
  }
  // The first token and feature.
  __device__ int32_t t() const { return t_; }
  __device__ int32_t n() const { return n_; }

 private:
  const FittedParams& params_;
  int32_t next_;
  int32_t t_ = 0, n_ = 0;
};

// The blocks of K that are this block's.
template <typename C>
struct FittedRange {
  int32_t begin, end;
  __device__ explicit FittedRange(const FittedParams& params) : begin(0), end(params.k_blocks) {
    if constexpr (C::kParts == 2) {
      const int32_t half = (params.k_blocks + 1) / 2;
      if (ClusterRank() == 0) {
        end = half;
      } else {
        begin = half;
      }
    }
  }
};

}  // namespace hayate::ops::sm90
