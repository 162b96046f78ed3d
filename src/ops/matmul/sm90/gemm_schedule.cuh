#pragma once
// Which tiles, and which part of K of them, a block computes.

#include <cstdint>

#include "ops/matmul/sm90/gemm_config.cuh"

namespace hayate::ops::sm90 {

// Stages [begin, end) of the K of one tile.
struct GemmWork {
  int32_t tile_n, tile_t;
  int32_t begin, end;
};

// Few tokens: the stages of all tiles, in one line, are cut into equal runs, one per block
// ("stream-K"), so that every multiprocessor streams the same bytes of weights. Cuts depend on N, K
// and the number of blocks alone.
class EvenRuns {
 public:
  __device__ explicit EvenRuns(const GemmParams& params) : params_(params) {
    const int64_t total = static_cast<int64_t>(params.tiles_n) * params.tiles_t * params.k_blocks;
    next_ = total * blockIdx.x / gridDim.x;
    end_ = total * (blockIdx.x + 1) / gridDim.x;
  }

  __device__ bool Next(GemmWork* work) {
    if (next_ >= end_) return false;
    const int32_t tile = static_cast<int32_t>(next_ / params_.k_blocks);
    work->begin = static_cast<int32_t>(next_ % params_.k_blocks);
    const int64_t left = end_ - next_;
    work->end = left < params_.k_blocks - work->begin ? work->begin + static_cast<int32_t>(left)
                                                      : params_.k_blocks;
    work->tile_n = tile % params_.tiles_n;
    work->tile_t = tile / params_.tiles_n;
    next_ += work->end - work->begin;
    return true;
  }

 private:
  const GemmParams& params_;
  int64_t next_, end_;
};

// Many tokens: whole tiles, strided over the blocks. Bands of tokens go through all of N, so that
// the tiles in flight at one time are about square and share rows of both operands in the cache.
template <int kCluster>
class WholeTiles {
 public:
  __device__ explicit WholeTiles(const GemmParams& params)
      : params_(params), next_(static_cast<int32_t>(blockIdx.x) / kCluster) {}

  __device__ bool Next(GemmWork* work) {
    const int32_t groups_t = (params_.tiles_t + kCluster - 1) / kCluster;
    if (next_ >= groups_t * params_.tiles_n) return false;
    constexpr int32_t kBand = 16 / kCluster;
    const int32_t per_band = kBand * params_.tiles_n;
    const int32_t first = next_ / per_band * kBand;
    const int32_t height = groups_t - first < kBand ? groups_t - first : kBand;
    const int32_t inside = next_ % per_band;
    work->tile_t =
        (first + inside % height) * kCluster + static_cast<int32_t>(blockIdx.x) % kCluster;
    work->tile_n = inside / height;
    work->begin = 0;
    work->end = params_.k_blocks;
    next_ += static_cast<int32_t>(gridDim.x) / kCluster;
    return true;
  }

 private:
  const GemmParams& params_;
  int32_t next_;
};

}  // namespace hayate::ops::sm90
