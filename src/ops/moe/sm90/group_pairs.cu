// Groups pairs by expert: counts, offsets, tiles, then each pair to its place. One block; a pair's
// place among those of its expert depends on the timing of threads, which no result can tell.
// Bound: latency of atomics in shared memory; 64 Ki pairs are 64 turns.

#include <algorithm>

#include "base/align.h"
#include "ops/detail/sm90/launch.cuh"
#include "ops/moe/sm90/experts.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 1024;
constexpr unsigned kAll = 0xFFFFFFFFu;

__device__ __forceinline__ int InclusiveSum(int x, int lane) {
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int before = __shfl_up_sync(kAll, x, step);
    if (lane >= step) x += before;
  }
  return x;
}

__global__ void __launch_bounds__(kThreads) GroupKernel(const __grid_constant__ GroupPairsArgs a) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  extern __shared__ int32_t counts[];  // [experts], then where the next pair of each goes
  int32_t* first_tile = counts + a.num_experts;
  for (int e = threadIdx.x; e < a.num_experts; e += kThreads) counts[e] = 0;
  __syncthreads();
  for (int pair = threadIdx.x; pair < a.num_pairs; pair += kThreads) {
    const unsigned expert = static_cast<unsigned>(a.chosen[pair] - a.first);
    if (expert < static_cast<unsigned>(a.num_experts)) atomicAdd(&counts[expert], 1);
  }
  __syncthreads();
  const int tile = a.out.tile_tokens;
  if (threadIdx.x < 32) {
    const int lane = threadIdx.x;
    int pairs = 0, tiles = 0;
    for (int begin = 0; begin < a.num_experts; begin += 32) {
      const int e = begin + lane;
      const int count = e < a.num_experts ? counts[e] : 0;
      const int own_tiles = (count + tile - 1) / tile;
      const int pairs_to = InclusiveSum(count, lane), tiles_to = InclusiveSum(own_tiles, lane);
      if (e < a.num_experts) {
        counts[e] = pairs + pairs_to - count;
        first_tile[e] = tiles + tiles_to - own_tiles;
        for (int i = 0; i < own_tiles; ++i) {
          a.out.tiles[first_tile[e] + i] = {e, counts[e] + i * tile, min(tile, count - i * tile)};
        }
      }
      pairs += __shfl_sync(kAll, pairs_to, 31);
      tiles += __shfl_sync(kAll, tiles_to, 31);
    }
    if (lane == 0) *a.out.num_tiles = tiles;
  }
  __syncthreads();
  for (int pair = threadIdx.x; pair < a.num_pairs; pair += kThreads) {
    const unsigned expert = static_cast<unsigned>(a.chosen[pair] - a.first);
    if (expert >= static_cast<unsigned>(a.num_experts)) continue;
    a.out.order[atomicAdd(&counts[expert], 1)] = pair;
  }
}

}  // namespace

int32_t MaxTiles(int64_t num_pairs, int64_t num_experts, int32_t tile_tokens) {
  return static_cast<int32_t>(std::min(num_pairs, num_experts) + num_pairs / tile_tokens);
}

void GroupPairs(Stream stream, const GroupPairsArgs& args) {
  LaunchDependent(stream, GroupKernel, 1, kThreads,
                  static_cast<size_t>(args.num_experts) * 2 * sizeof(int32_t), args);
  CUDA_CHECK_LAUNCH(stream, "group_pairs", args.num_pairs, args.num_experts);
}

}  // namespace hayate::ops::sm90
