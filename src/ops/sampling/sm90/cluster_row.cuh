#pragma once
// A row of logits in the shared memory of a cluster: block r holds one slice, in order of id. Sums
// of masses are integers, so it does not matter in which order threads and blocks add them.

#include <cstdint>

#include "ops/detail/sm90/cluster.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "ops/sampling/detail/mass.h"

namespace hayate::ops::sm90 {

using sampling::IdOf;
using sampling::KeyOf;
using sampling::LogitOf;
using sampling::Mass;

constexpr int kBlocks = 8;  // of a cluster: the largest portable size
constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kBins = 1024;
constexpr int kPartBins = kBins / kBlocks;
constexpr int kListKeys = kThreads;  // a thread sorts one
constexpr uint32_t kAllLanes = 0xFFFFFFFFu;

struct Shared {
  uint64_t bin_mass[kBins];
  uint32_t bin_count[kBins];
  uint64_t list[kListKeys];
  uint64_t merged[kListKeys];  // of the cluster, in block 0
  uint64_t exchanged[2][2];    // two values for the others, doubled
  uint64_t warp_sums[kWarps];
  float warp_highest[kWarps];
  uint64_t found[2];  // what one block decides for all
  uint32_t list_size;
};

// A block's view of the row.
struct Row {
  float* x;   // [count], the slice
  int begin;  // id of x[0]
  int count;
  int vocab_size;
  uint32_t rank;  // of this block in the cluster
  Shared* shared;
  uint32_t parity;  // of the next exchange

  __device__ uint64_t KeyAt(int i) const { return KeyOf(x[i], begin + i); }
};

// What all blocks of the cluster hold, by rank: lane l of every warp gets that of block l mod 8.
struct Gathered {
  uint64_t a, b;
};

// ClusterSync by warps that may have diverged.
__device__ __forceinline__ void MeetBlocks() {
  __syncwarp();
  ClusterSync();
}

// Exchanges two values of each block (those of its thread 0). All threads of the cluster call it.
// A slot is written again two exchanges later, when all have met once more after reading it.
__device__ __forceinline__ Gathered Exchange(Row& row, uint64_t a, uint64_t b) {
  uint64_t* slot = row.shared->exchanged[row.parity];
  row.parity ^= 1;
  if (threadIdx.x == 0) slot[0] = a, slot[1] = b;
  MeetBlocks();
  const uint64_t* other = InBlock(slot, threadIdx.x % kBlocks);
  return {other[0], other[1]};
}

__device__ __forceinline__ uint64_t ShuffleXor(uint64_t x, int lane) {
  return __shfl_xor_sync(kAllLanes, x, lane);
}
__device__ __forceinline__ uint64_t FromLane(uint64_t x, int lane) {
  return __shfl_sync(kAllLanes, x, lane);
}
// Over the blocks of the cluster, from values gathered by rank.
__device__ __forceinline__ uint64_t SumOfBlocks(uint64_t x) {
#pragma unroll
  for (int lane = kBlocks / 2; lane > 0; lane /= 2) x += ShuffleXor(x, lane);
  return x;
}
__device__ __forceinline__ uint64_t MaxOfBlocks(uint64_t x) {
#pragma unroll
  for (int lane = kBlocks / 2; lane > 0; lane /= 2) {
    const uint64_t other = ShuffleXor(x, lane);
    x = other > x ? other : x;
  }
  return x;
}

__device__ __forceinline__ uint64_t WarpSum(uint64_t x) {
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) x += ShuffleXor(x, lane);
  return x;
}
// Σ over lanes 0 … own.
__device__ __forceinline__ uint64_t WarpPrefixSum(uint64_t x) {
  const int own = threadIdx.x % 32;
#pragma unroll
  for (int lane = 1; lane < 32; lane *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, x, lane);
    if (own >= lane) x += other;
  }
  return x;
}

// Σ over the block; every thread gets it. Leaves the warps' sums in warp_sums.
__device__ __forceinline__ uint64_t BlockSum(Row& row, uint64_t x) {
  uint64_t* sums = row.shared->warp_sums;
  const uint64_t sum = WarpSum(x);
  __syncthreads();  // readers of the last sums are done
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  return WarpSum(lane < kWarps ? sums[lane] : 0);
}
__device__ __forceinline__ uint64_t ClusterSum(Row& row, uint64_t x) {
  const uint64_t sum = BlockSum(row, x);
  return SumOfBlocks(Exchange(row, sum, 0).a);
}

__device__ __forceinline__ uint64_t BlockMax(Row& row, uint64_t x) {
  uint64_t* highest = row.shared->warp_sums;
#pragma unroll
  for (int lane = 16; lane > 0; lane /= 2) {
    const uint64_t other = ShuffleXor(x, lane);
    x = other > x ? other : x;
  }
  __syncthreads();
  if (threadIdx.x % 32 == 0) highest[threadIdx.x / 32] = x;
  __syncthreads();
  x = 0;
  for (int warp = 0; warp < kWarps; ++warp) x = highest[warp] > x ? highest[warp] : x;
  return x;
}

// Inclusive prefix sums over the block, and their total.
struct Prefix {
  uint64_t sum, total;
};
__device__ __forceinline__ Prefix BlockPrefixSum(Row& row, uint64_t x) {
  uint64_t* sums = row.shared->warp_sums;
  const uint64_t within = WarpPrefixSum(x);
  __syncthreads();
  if (threadIdx.x % 32 == 31) sums[threadIdx.x / 32] = within;
  __syncthreads();
  const int lane = threadIdx.x % 32;
  const uint64_t warps = WarpPrefixSum(lane < kWarps ? sums[lane] : 0);
  const int warp = threadIdx.x / 32;
  const uint64_t before = FromLane(warps, warp == 0 ? 0 : warp - 1);
  return {within + (warp == 0 ? 0 : before), FromLane(warps, 31)};
}

// A number that one block of the cluster knows, told to all. `shared->found` must be written by
// thread(s) of block `owner` alone.
__device__ __forceinline__ Gathered FoundBy(Row& row, uint32_t owner) {
  MeetBlocks();
  const uint64_t* found = InBlock(row.shared->found, owner);
  const Gathered result = {found[0], found[1]};
  MeetBlocks();  // before anyone writes the next
  return result;
}

}  // namespace hayate::ops::sm90
