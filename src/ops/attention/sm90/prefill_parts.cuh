#pragma once
// A tile in parts: each block of a cluster attends a part of its keys, and they meet in shared
// memory. In every step two blocks divide their queries: a warp of either sends what it has of the
// half that the other goes on with, and adds to its own half what comes. So the traffic and the
// additions are spread over all blocks, and the order of additions is fixed.
//
//   warps of 16 queries that go on, two parts:  block 0: 0 1 2 3      block 1: 4 5 6 7
//   four parts, then:                           block 0: 0 1, 2: 2 3  block 1: 4 5, 3: 6 7
//
// A cluster has one tile and ends with it.
//
//   traffic   4 · (D + 2) bytes a query and step, between multiprocessors

#include "ops/attention/sm90/prefill_softmax.cuh"
#include "ops/attention/sm90/prefill_work.cuh"
#include "ops/detail/sm90/cluster.cuh"
#include "ops/detail/sm90/launch.cuh"

namespace hayate::ops::sm90 {

// Where a warp of a tile in parts gets what others send. A block's warps that go on differ by it.
__device__ __forceinline__ int PartPlace() { return threadIdx.x / 32 % kMergingWarps; }

template <int kD>
__device__ __forceinline__ void SendPart(const RowSoftmax& rows, const float (&o)[kD / 2],
                                         uint32_t rank, PrefillShared<kD>* shared) {
  const int place = PartPlace(), lane = threadIdx.x % 32;
  float4(*sums)[32] = InBlock(shared->part_sums[place], rank);
#pragma unroll
  for (int i = 0; i < kD / 8; ++i) {
    sums[i][lane] = make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float sum = QuadSum(rows.sum[half]);
    if (lane % 4 > 0) continue;
    *InBlock(&shared->part_max_sum[place][lane / 4 + 8 * half], rank) =
        make_float2(rows.max[half], sum);
  }
}

template <int kD>
__device__ __forceinline__ void AddPart(const PrefillShared<kD>& shared, float scale_log2,
                                        RowSoftmax* rows, float (&o)[kD / 2]) {
  const int place = PartPlace(), lane = threadIdx.x % 32;
  float mine[2], theirs[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float2 max_sum = shared.part_max_sum[place][lane / 4 + 8 * half];
    const float highest = fmaxf(rows->max[half], max_sum.x);
    // A part may hold no visible key.
    const float base = highest == -INFINITY ? 0.0f : highest * scale_log2;
    mine[half] = Exp2(rows->max[half] * scale_log2 - base);
    theirs[half] = Exp2(max_sum.x * scale_log2 - base);
    rows->max[half] = highest;
    rows->sum[half] *= mine[half];
    if (lane % 4 == 0) rows->sum[half] += max_sum.y * theirs[half];
  }
#pragma unroll
  for (int i = 0; i < kD / 8; ++i) {
    const float4 sums = shared.part_sums[place][i][lane];
    o[4 * i] = o[4 * i] * mine[0] + sums.x * theirs[0];
    o[4 * i + 1] = o[4 * i + 1] * mine[0] + sums.y * theirs[0];
    o[4 * i + 2] = o[4 * i + 2] * mine[1] + sums.z * theirs[1];
    o[4 * i + 3] = o[4 * i + 3] * mine[1] + sums.w * theirs[1];
  }
}

// Merges the parts of the cluster's tile. `warp` of the tile has 16 queries; true if the calling
// block goes on with them. All warps that compute; the others call SitOutMerge.
template <int kParts, int kD>
__device__ __forceinline__ bool MergeParts(int warp, float scale_log2, RowSoftmax* rows,
                                           float (&o)[kD / 2], PrefillShared<kD>* shared) {
  static_assert(kParts == 2 || kParts == 4);
  const auto rank = static_cast<int>(ClusterRank());
  bool mine = true;
#pragma unroll
  for (int step = 0; 1 << step < kParts; ++step) {
    if (step > 0) ClusterSync();  // all have added what came in the step before
    const bool stays = (warp >> (2 - step)) % 2 == (rank >> step) % 2;
    if (mine && !stays) SendPart<kD>(*rows, o, static_cast<uint32_t>(rank ^ 1 << step), shared);
    ClusterSync();
    mine = mine && stays;
    if (mine) AddPart<kD>(*shared, scale_log2, rows, o);
  }
  return mine;
}

template <int kParts>
__device__ __forceinline__ void SitOutMerge() {
  __syncwarp();  // one lane may have worked alone
#pragma unroll
  for (int i = 0; i < (kParts == 2 ? 1 : 3); ++i) ClusterSync();
}

}  // namespace hayate::ops::sm90
