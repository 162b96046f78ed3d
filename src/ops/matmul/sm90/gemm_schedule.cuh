#pragma once
// Which tiles a block computes, and of which blocks of K. But for tiles in two parts every tile
// goes through all of K, so that no sums travel between blocks.

#include <cstdint>

#include "ops/detail/sm90/launch.cuh"
#include "ops/matmul/sm90/gemm_config.cuh"

namespace hayate::ops::sm90 {

struct GemmWork {
  int32_t tile_n, tile_t;
};

// Few tokens: the blocks of a cluster take neighbouring features of the same tokens, or kParts
// parts of the same tile.
template <int kCluster, int kParts>
class NarrowTiles {
 public:
  __device__ explicit NarrowTiles(const GemmParams& params)
      : params_(params), next_(static_cast<int32_t>(blockIdx.x) / kBlocks) {}

  __device__ bool Next(GemmWork* work) {
    const int32_t groups_n = (params_.tiles_n + kCluster - 1) / kCluster;
    if (next_ >= groups_n * params_.tiles_t) return false;
    work->tile_n = next_ % groups_n * kCluster + static_cast<int32_t>(blockIdx.x) % kCluster;
    work->tile_t = next_ / groups_n;
    next_ += static_cast<int32_t>(gridDim.x) / kBlocks;
    return true;
  }

 private:
  static constexpr int32_t kBlocks = kCluster * kParts;
  const GemmParams& params_;
  int32_t next_;
};

// The blocks of K that are this block's: all, or of two parts a half in whole stages.
template <typename C>
struct GemmRange {
  int32_t begin, end;
  __device__ explicit GemmRange(const GemmParams& params) : begin(0), end(params.k_blocks) {
    if constexpr (C::kParts == 2) {
      constexpr int32_t kTwoStages = 2 * C::kBlocks;
      const int32_t half = (params.k_blocks + kTwoStages - 1) / kTwoStages * C::kBlocks;
      if (ClusterRank() == 0) {
        end = half;
      } else {
        begin = half;
      }
    }
  }
  __device__ int32_t blocks() const { return end - begin; }
};

// Many tokens: the blocks of a cluster take neighbouring tokens of the same features, or
// neighbouring features of the same tokens. Bands of tokens go through all of N, so that the tiles
// in flight at one time are about square and share rows of both operands in the cache.
template <int kCluster, bool kSharesTokens>
class WideTiles {
 public:
  __device__ explicit WideTiles(const GemmParams& params)
      : params_(params), next_(static_cast<int32_t>(blockIdx.x) / kCluster) {}

  __device__ bool Next(GemmWork* work) {
    const int32_t groups_t = (params_.tiles_t + kAlongT - 1) / kAlongT;
    const int32_t groups_n = (params_.tiles_n + kAlongN - 1) / kAlongN;
    if (next_ >= groups_t * groups_n) return false;
    constexpr int32_t kBand = kSharesTokens ? 8 : 16 / kCluster;
    const int32_t per_band = kBand * groups_n;
    const int32_t first = next_ / per_band * kBand;
    const int32_t height = min(groups_t - first, kBand);
    const int32_t inside = next_ % per_band;
    const int32_t rank = static_cast<int32_t>(blockIdx.x) % kCluster;
    work->tile_t = (first + inside % height) * kAlongT + rank % kAlongT;
    work->tile_n = inside / height * kAlongN + rank % kAlongN;
    next_ += static_cast<int32_t>(gridDim.x) / kCluster;
    return true;
  }

 private:
  static constexpr int32_t kAlongT = kSharesTokens ? 1 : kCluster;
  static constexpr int32_t kAlongN = kSharesTokens ? kCluster : 1;
  const GemmParams& params_;
  int32_t next_;
};

}  // namespace hayate::ops::sm90
