#pragma once
// The ring of stages between the copy engine and the tensor cores, and the thread that fills it. A
// stage holds kBlocks blocks of K: 128 bytes of x_rows rows of x, one block behind the other, and
// of kTileN rows of weights, both swizzled, and under kBlock the scales of kTileT rows of x and
// kScalesW of the weights.

#include <type_traits>

#include "ops/detail/sm90/launch.cuh"
#include "ops/detail/sm90/tma.cuh"
#include "ops/matmul/sm90/gemm_schedule.cuh"

namespace hayate::ops::sm90 {

template <typename C>
struct GemmShared {
  static constexpr int kSlots = C::kStages * C::kBlocks;
  uint8_t* base;  // 1024-byte aligned
  int x_rows;     // of a block of K

  __device__ GemmShared(uint8_t* raw, const GemmParams& params)
      : base(raw + (1024 - SharedAddress(raw) % 1024) % 1024),
        x_rows(C::kNarrow ? params.x_rows : C::kTileT) {}
  __device__ uint8_t* x(uint32_t stage, int block) const {
    return base + stage * C::kBlocks * C::kBlockBytesX + block * x_rows * kRowBytes;
  }
  __device__ uint8_t* w(uint32_t stage, int block) const {
    return base + kSlots * C::kBlockBytesX + (stage * C::kBlocks + block) * C::kBlockBytesW;
  }
  __device__ float* x_scales(uint32_t stage, int block) const {
    return reinterpret_cast<float*>(base + kSlots * (C::kBlockBytesX + C::kBlockBytesW) +
                                    C::kStoreBytes + stage * C::kScaleSpace) +
           block * C::kTileT;
  }
  __device__ float* w_scales(uint32_t stage, int block) const {
    return x_scales(stage, 0) + C::kScaleSpaceX / 4 + block * kScalesW;
  }
  // Of a warp of the consumers, wide tiles: kStoreBuffers boxes on their way to out, swizzled.
  __device__ uint8_t* store_box(int warp, int buffer) const {
    return base + kSlots * (C::kBlockBytesX + C::kBlockBytesW) +
           (warp * C::kStoreBuffers + buffer) * kStoreRows * kRowBytes;
  }
  __device__ Barrier* full(uint32_t stage) const {
    return reinterpret_cast<Barrier*>(base + C::kStages * C::kStageSpace + C::kStoreBytes) + stage;
  }
  __device__ Barrier* empty(uint32_t stage) const { return full(stage) + C::kStages; }
  // kCanNorm: the factors of the tile's rows that a norm left to this product, and their barrier.
  __device__ Barrier* scaled() const { return full(0) + 2 * C::kMaxStages; }
  __device__ float* row_scales() const { return reinterpret_cast<float*>(scaled() + 2); }
  // kSplitK: the sums of the second group, 128 floats an accumulator. Two parts: of the other
  // block's group, in fours.
  __device__ float* exchange() const {
    return reinterpret_cast<float*>(base + C::kStages * C::kStageSpace + C::kStoreBytes +
                                    C::kBarrierBytes);
  }

  // One thread. A stage is empty when every consumer warp of every block that receives it says so.
  __device__ void InitBarriers() const {
    for (uint32_t stage = 0; stage < C::kStages; ++stage) {
      InitBarrier(full(stage), 1);
      InitBarrier(empty(stage), C::kConsumerThreads / 32 * C::kCluster);
    }
    if constexpr (C::kCanNorm) InitBarrier(scaled(), kScalingWarps);
    FenceBarrierInit();
  }
};

template <typename C>
using GemmSchedule = std::conditional_t<C::kNarrow, NarrowTiles<C::kCluster, C::kParts>,
                                        WideTiles<C::kCluster, C::kSharesTokens>>;

// The stages of a block's work one after the other.
template <typename C>
class StageWalk {
 public:
  __device__ explicit StageWalk(const GemmParams& params)
      : schedule_(params), range_(params), k_(range_.end) {}

  __device__ bool Next() {
    k_ += C::kBlocks;
    if (k_ < range_.end) return true;
    if (!schedule_.Next(&work_)) return false;
    k_ = range_.begin;
    return true;
  }
  __device__ int32_t k() const { return k_; }  // first block of K of the stage
  __device__ const GemmWork& work() const { return work_; }

 private:
  GemmSchedule<C> schedule_;
  GemmWork work_{0, 0};
  const GemmRange<C> range_;
  int32_t k_;
};

// One operand of one block of K: from the tensor map, or this block's part of it to all of the
// cluster.
template <int kParts, int kBoxRows>
__device__ __forceinline__ void LoadRows(uint8_t* shared, const CUtensorMap* map, Barrier* full,
                                         int32_t column, int32_t row, CacheHint hint) {
  if constexpr (kParts == 1) {
    Load2D(shared, map, full, column, row, hint);
  } else {
    const int32_t part = static_cast<int32_t>(ClusterRank()) * kBoxRows;
    Load2DMulticast(shared + part * kRowBytes, map, full, column, row + part, (1 << kParts) - 1,
                    hint);
  }
}

// Narrow tiles: `copy` is asked for boxes that bring kBlocks blocks of K of the stage from block
// `first` on: for one, or for one a block where the last block of K is not whole. Its arguments are
// the block in the stage and the box's column and block of K in the operand's map.
template <int kBlocks, int kBlockK, typename Copy>
__device__ __forceinline__ void CopyBlocks(const GemmParams& params, int32_t k, int first,
                                           const Copy& copy) {
  if (!params.ragged_k) return copy(first, 0, k + first);
#pragma unroll
  for (int i = first; i < first + kBlocks; ++i) copy(i, (k + i) * kBlockK, 0);
}

// The first of the scales of weights that a stage holds, for a tile that starts at feature n0: the
// copy engine reads from 16-byte borders on.
__device__ __forceinline__ int32_t FirstScale(const GemmParams& params, int32_t n0) {
  constexpr int32_t kRows = static_cast<int32_t>(kScaleColumns);
  return min(n0 / kRows, (params.n - 1) / kRows) / 4 * 4;
}

template <typename C>
__device__ void LoadWeights(const GemmParams& params, const GemmShared<C>& shared, uint32_t stage,
                            const StageWalk<C>& walk) {
  Barrier* const full = shared.full(stage);
  const int32_t n0 = walk.work().tile_n * C::kTileN, k = walk.k();
  ArriveExpectBytes(full, C::kStageBytesBesideX + C::kBlocks * shared.x_rows * kRowBytes);
  if constexpr (C::kNarrow) {
    CopyBlocks<C::kBlocks, C::kBlockK>(params, k, 0, [&](int block, int32_t column, int32_t at) {
      uint8_t* const to = shared.w(stage, block);
      if (C::kCanGate && params.gated) {
        Load4D(to, &params.w_map, full, column, 0, n0 / 2, at, CacheHint::kEvictFirst);
      } else {
        Load3D(to, &params.w_map, full, column, n0, at, CacheHint::kEvictFirst);
      }
    });
    if constexpr (C::kPromote) {
      Load2D(shared.w_scales(stage, 0), &params.w_scale_map, full, FirstScale(params, n0), k);
    }
  } else {
    LoadRows<C::kSharesTokens ? 1 : C::kCluster, C::kBoxN>(shared.w(stage, 0), &params.w_map, full,
                                                           k * C::kBlockK, n0, CacheHint::kNormal);
    if constexpr (C::kPromote) {
      LoadBytes(shared.w_scales(stage, 0),
                params.w_scale + k * params.w_scale_stride + FirstScale(params, n0), full,
                C::kStageBytesScaleW);
    }
  }
}

template <typename C>
__device__ void LoadTokens(const GemmParams& params, const GemmShared<C>& shared, uint32_t stage,
                           const StageWalk<C>& walk) {
  Barrier* const full = shared.full(stage);
  const int32_t tile = walk.work().tile_t, t0 = tile * C::kTileT, k = walk.k();
  if constexpr (C::kNarrow) {
    // This block's part: some of the blocks of K, or some of the rows of one.
    const auto rank = C::kCluster > 1 ? static_cast<int32_t>(ClusterRank()) : 0;
    const int32_t part = C::kSplitsRows ? rank * (shared.x_rows / C::kCluster) : 0;
    CopyBlocks<C::kBoxBlocksX, C::kBlockK>(
        params, k, C::kSplitsRows ? 0 : rank * C::kBoxBlocksX,
        [&](int block, int32_t column, int32_t at) {
          uint8_t* const to = shared.x(stage, block) + part * kRowBytes;
          if constexpr (C::kCluster == 1) {
            Load3D(to, &params.x_map, full, column, t0, at, CacheHint::kEvictLast);
          } else {
            Load3DMulticast(to, &params.x_map, full, column, t0 + part, at, (1 << C::kCluster) - 1,
                            CacheHint::kEvictLast);
          }
        });
    if constexpr (C::kPromote) {
      Load2D(shared.x_scales(stage, 0), &params.x_scale_map, full, t0, k, CacheHint::kEvictLast);
    }
  } else {
    LoadRows<C::kSharesTokens ? C::kCluster : 1, C::kBoxT>(shared.x(stage, 0), &params.x_map, full,
                                                           k * C::kBlockK, t0, CacheHint::kNormal);
    if constexpr (C::kPromote) {
      // The last tile of a cluster may lie past the tokens.
      const int32_t inside = min(tile, params.tiles_t - 1);
      LoadBytes(shared.x_scales(stage, 0),
                params.x_scale + k * params.x_scale_stride + inside * C::kTileT, full,
                C::kStageBytesScaleX);
    }
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
