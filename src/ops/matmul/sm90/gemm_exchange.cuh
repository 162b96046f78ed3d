#pragma once
// Where two take a share of K each of the same sums: the groups of a block in the narrowest tiles
// (kSplitK), the blocks of a pair in tiles of two parts. The sum is that of the first share plus
// that of the second.

#include "ops/detail/sm90/cluster.cuh"
#include "ops/matmul/sm90/gemm_mainloop.cuh"

namespace hayate::ops::sm90 {

// kSplitK: the second group hands its sums to the first. True in the first, which stores the tile.
template <typename C>
class SumExchange {
 public:
  __device__ explicit SumExchange(const GemmShared<C>& shared, int group)
      : mine_(shared.exchange() + threadIdx.x % 128), group_(group) {}

  __device__ __forceinline__ bool Join(Slabs<C>& sum) {
    if constexpr (!C::kSplitK) return true;
    if (group_ == 1) {
      if (!first_) SyncThreads(kTaken, C::kConsumerThreads);
      first_ = false;
      ForEach(sum, [](float& value, float* place) { *place = value; });
      ArriveThreads(kReady, C::kConsumerThreads);
      return false;
    }
    SyncThreads(kReady, C::kConsumerThreads);
    ForEach(sum, [](float& value, float* place) { value += *place; });
    ArriveThreads(kTaken, C::kConsumerThreads);
    return true;
  }
  // Takes the last arrival, so that none is left when the block ends.
  __device__ void End() const {
    if (C::kSplitK && group_ == 1 && !first_) SyncThreads(kTaken, C::kConsumerThreads);
  }

 private:
  template <typename Visit>
  __device__ __forceinline__ void ForEach(Slabs<C>& sum, const Visit& visit) const {
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; ++slab) {
#pragma unroll
      for (int i = 0; i < C::kRegs; ++i) visit(sum[slab][i], mine_ + (slab * C::kRegs + i) * 128);
    }
  }

  static constexpr int kReady = 3, kTaken = 4;  // named barriers
  float* const mine_;
  const int group_;
  bool first_ = true;
};

// Two parts: block r of the pair finishes what group r has of the tile, with the sums that the same
// group of the other block writes into its shared memory. True in the group that stores. All
// threads of both blocks synchronise once with it, and no block touches the other one's memory
// after that.
template <typename C>
__device__ __forceinline__ bool JoinParts(Slabs<C>& sum, const GemmShared<C>& shared, int group) {
  static_assert(C::kSlabs == 1 && C::kRegs % 4 == 0);
  const uint32_t rank = ClusterRank();
  const bool stores = static_cast<uint32_t>(group) == rank;
  auto* const got = reinterpret_cast<float4*>(shared.exchange()) + threadIdx.x % 128;
  if (!stores) {
    float4* const other = InBlock(got, rank ^ 1);
#pragma unroll
    for (int i = 0; i < C::kRegs; i += 4) {
      other[i / 4 * 128] = make_float4(sum[0][i], sum[0][i + 1], sum[0][i + 2], sum[0][i + 3]);
    }
  }
  ClusterSync();
  if (!stores) return false;
#pragma unroll
  for (int i = 0; i < C::kRegs; i += 4) {
    const float4 more = got[i / 4 * 128];
    sum[0][i] += more.x;
    sum[0][i + 1] += more.y;
    sum[0][i + 2] += more.z;
    sum[0][i + 3] += more.w;
  }
  return true;
}

}  // namespace hayate::ops::sm90
