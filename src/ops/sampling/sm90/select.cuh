#pragma once
// Where a sorted row is cut: the last key of the shortest prefix that holds a target weight,
// without sorting the row. Weights are 1 (top-k) or masses (top-p).
//
// The key sought lies in [low, high]. A histogram over that range (1024 bins of equal width in key
// space) says in which bin, which becomes the range; once it holds at most 512 keys they are
// gathered in block 0, sorted and summed. Nearly always one histogram is enough; equal logits only
// make it two or three, as ids are part of the key.

#include "ops/sampling/sm90/cluster_row.cuh"

namespace hayate::ops::sm90 {

enum class Weight { kCount, kMass };

struct MassScale {
  float highest;
  float inv_temperature;

  __device__ uint64_t Of(float logit) const {
    return Mass(sampling::Times(sampling::Plus(logit, -highest), inv_temperature));
  }
};

template <Weight kWeight>
__device__ __forceinline__ uint64_t WeightOf(float logit, const MassScale& scale) {
  if constexpr (kWeight == Weight::kCount) return 1;
  return scale.Of(logit);
}

// The keys in [low, high] of all slices, unsorted, in block 0's `merged`; their number. More than
// kListKeys: only the number.
__device__ __forceinline__ int GatherKeys(Row& row, uint64_t low, uint64_t high) {
  Shared& shared = *row.shared;
  __syncthreads();
  if (threadIdx.x == 0) shared.list_size = 0;
  __syncthreads();
  const float least = LogitOf(low);
  for (int i = threadIdx.x; i < row.count; i += kThreads) {
    if (row.x[i] < least) continue;
    const uint64_t key = row.KeyAt(i);
    if (key < low || key > high) continue;
    const uint32_t place = atomicAdd(&shared.list_size, 1u);
    if (place < kListKeys) shared.list[place] = key;
  }
  __syncthreads();
  const uint64_t size = shared.list_size;
  const uint64_t sizes = Exchange(row, size, 0).a;
  const uint64_t total = SumOfBlocks(sizes);
  if (total > kListKeys) return static_cast<int>(total);
  uint64_t before = 0;
  for (uint32_t r = 0; r < row.rank; ++r) before += FromLane(sizes, static_cast<int>(r));
  uint64_t* merged = InBlock(shared.merged, 0);
  for (uint32_t i = threadIdx.x; i < size; i += kThreads) merged[before + i] = shared.list[i];
  MeetBlocks();
  return static_cast<int>(total);
}

// Block 0 alone: `merged` [size], descending, into `list`. No two keys are equal.
__device__ __forceinline__ void SortMerged(Row& row, int size) {
  Shared& shared = *row.shared;
  const int own = threadIdx.x;
  const uint64_t key = own < size ? shared.merged[own] : 0;
  int place = 0;
  for (int i = 0; i < size; ++i) place += shared.merged[i] > key;
  if (own < size) shared.list[place] = key;
  __syncthreads();
}

// The sought key is among `size` merged ones.
template <Weight kWeight>
__device__ __forceinline__ uint64_t CutInList(Row& row, const MassScale& scale, int size,
                                              uint64_t remaining, float top_p) {
  if (row.rank == 0) {
    SortMerged(row, size);
    const int own = threadIdx.x;
    const uint64_t key = own < size ? row.shared->list[own] : 0;
    const uint64_t weight = own < size ? WeightOf<kWeight>(LogitOf(key), scale) : 0;
    const Prefix prefix = BlockPrefixSum(row, weight);
    if (remaining == 0) remaining = sampling::TopPTarget(top_p, prefix.total);
    if (prefix.sum >= remaining && prefix.sum - weight < remaining) row.shared->found[0] = key;
  }
  return FoundBy(row, 0).a;
}

struct Range {
  uint64_t low, high;
  uint64_t remaining;  // weight still to be found in it
  uint64_t count;      // keys in it, where a histogram said so
};

// Adds the weights of the keys in the range to the bins. Returns this thread's weight below it.
template <Weight kWeight>
__device__ __forceinline__ uint64_t FillBins(Row& row, const MassScale& scale, const Range& range,
                                             int shift, uint64_t floor, bool sum_below) {
  Shared& shared = *row.shared;
  __syncthreads();
  for (int i = threadIdx.x; i < kBins; i += kThreads) {
    shared.bin_mass[i] = 0;
    shared.bin_count[i] = 0;
  }
  __syncthreads();
  const float least = LogitOf(sum_below ? floor : range.low);
  uint64_t below = 0;
  for (int i = threadIdx.x; i < row.count; i += kThreads) {
    const float logit = row.x[i];
    if (logit < least) continue;
    const uint64_t key = row.KeyAt(i);
    if (key > range.high) continue;
    if (key < range.low) {
      if (sum_below && key >= floor) below += WeightOf<kWeight>(logit, scale);
      continue;
    }
    const auto bin = static_cast<uint32_t>((range.high - key) >> shift);
    atomicAdd(&shared.bin_count[bin], 1u);
    if constexpr (kWeight == Weight::kMass) {
      atomicAdd(reinterpret_cast<unsigned long long*>(&shared.bin_mass[bin]),
                static_cast<unsigned long long>(scale.Of(logit)));
    }
  }
  return below;
}

// The last key of the shortest prefix of the keys ≥ `floor` that holds the target, or `floor` when
// all of them do not. The target is `target`, or where that is 0 the share top_p of all their mass.
// `guess` ≥ floor is where the key is expected to lie above; `try_list`: few keys lie there, and
// the target is among them.
template <Weight kWeight>
__device__ __forceinline__ uint64_t Cut(Row& row, const MassScale& scale, uint64_t floor,
                                        uint64_t guess, bool try_list, uint64_t target,
                                        float top_p) {
  Range range = {guess, KeyOf(scale.highest, 0), target, 0};
  if (try_list) {
    const int size = GatherKeys(row, range.low, range.high);
    if (size <= kListKeys) return CutInList<kWeight>(row, scale, size, target, top_p);
  }
  while (true) {
    const uint64_t span = range.high - range.low;
    const int bits = 64 - __clzll(static_cast<long long>(span));
    const int shift = bits > 10 ? bits - 10 : 0;
    const bool find_target = range.remaining == 0;
    uint64_t below =
        FillBins<kWeight>(row, scale, range, shift, floor, find_target && range.low > floor);
    if (find_target) below = BlockSum(row, below);
    MeetBlocks();

    // This block sums its part of the bins over all blocks.
    Shared& shared = *row.shared;
    uint64_t weight = 0, count = 0;
    const int bin = static_cast<int>(row.rank) * kPartBins + static_cast<int>(threadIdx.x);
    if (threadIdx.x < kPartBins) {
      for (uint32_t r = 0; r < kBlocks; ++r) {
        count += *InBlock(&shared.bin_count[bin], r);
        if constexpr (kWeight == Weight::kMass) weight += *InBlock(&shared.bin_mass[bin], r);
      }
      if constexpr (kWeight == Weight::kCount) weight = count;
    }
    const Prefix prefix = BlockPrefixSum(row, weight);
    const Gathered parts = Exchange(row, prefix.total, below);
    const uint64_t in_range = SumOfBlocks(parts.a);
    if (find_target) {
      range.remaining = sampling::TopPTarget(top_p, in_range + SumOfBlocks(parts.b));
    }
    if (in_range < range.remaining) {
      if (range.low <= floor) return floor;
      range.remaining -= in_range;
      range.high = range.low - 1;
      range.low = floor;
      continue;
    }
    uint32_t owner = 0;
    uint64_t before = 0;
    while (before + FromLane(parts.a, static_cast<int>(owner)) < range.remaining) {
      before += FromLane(parts.a, static_cast<int>(owner++));
    }
    if (row.rank == owner) {
      const uint64_t sum = before + prefix.sum;
      if (sum >= range.remaining && sum - weight < range.remaining) {
        shared.found[0] = static_cast<uint64_t>(bin) << 32 | count;
        shared.found[1] = sum - weight;
      }
    }
    const Gathered found = FoundBy(row, owner);
    range.remaining -= found.b;
    range.high -= (found.a >> 32) << shift;
    const uint64_t width = uint64_t{1} << shift;
    if (range.high - range.low >= width) range.low = range.high - (width - 1);
    if (static_cast<uint32_t>(found.a) <= kListKeys) {
      const int size = GatherKeys(row, range.low, range.high);
      return CutInList<kWeight>(row, scale, size, range.remaining, top_p);
    }
  }
}

// A lower bound of the k-th highest key, k ≤ kBlocks · kWarps, from the highest logits of the
// warps: few keys lie above it.
__device__ __forceinline__ uint64_t GuessOfHighest(Row& row, int k) {
  // warp_highest was written before the last exchange.
  constexpr int kCandidates = kBlocks * kWarps;
  __shared__ float all[kCandidates];
  __syncthreads();
  if (threadIdx.x < kCandidates) {
    all[threadIdx.x] =
        *InBlock(&row.shared->warp_highest[threadIdx.x % kWarps], threadIdx.x / kWarps);
  }
  __syncthreads();
  if (threadIdx.x < kCandidates) {
    const float own = all[threadIdx.x];
    int place = 0;
    for (int i = 0; i < kCandidates; ++i) {
      place += all[i] > own || (all[i] == own && i < static_cast<int>(threadIdx.x));
    }
    if (place == k - 1) row.shared->found[0] = KeyOf(own, 0xFFFFFFFFll);
  }
  __syncthreads();
  const uint64_t guess = row.shared->found[0];
  MeetBlocks();  // nobody reads warp_highest or found any more
  return guess;
}

}  // namespace hayate::ops::sm90
