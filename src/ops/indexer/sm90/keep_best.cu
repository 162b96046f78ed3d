// Keeps the K best of a token's scores, in ascending order of their index; of equal scores the
// earlier wins. A block per token finds the K-th best number by its bytes from the highest (four
// counts of 256), then writes what is better, and of its equals as many as are wanted.
// Traffic: the scores five times, from the second-level cache.

#include "base/check.h"
#include "ops/detail/sm90/launch.cuh"
#include "ops/indexer/sm90/indexer.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
constexpr int kDigits = 256;
constexpr unsigned kAll = 0xFFFFFFFFu;

struct Shared {
  int32_t counts[kDigits];
  int32_t warps[kWarps];
  uint32_t prefix;
  int32_t wanted;
};

// Σ over the threads before this one, and over all in `total`. Every thread comes.
__device__ int32_t SumBefore(int32_t x, Shared& shared, int32_t& total) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32_t sum = x;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int32_t other = __shfl_up_sync(kAll, sum, step);
    if (lane >= step) sum += other;
  }
  __syncthreads();
  if (lane == 31) shared.warps[warp] = sum;
  __syncthreads();
  int32_t before = 0;
  total = 0;
  for (int w = 0; w < kWarps; ++w) {
    if (w < warp) before += shared.warps[w];
    total += shared.warps[w];
  }
  return before + sum - x;
}

// score(i) for i < count gives numbers of which 0 counts as none. Writes the `wanted` best indexes
// that there are to `out`; returns how many.
template <typename Score>
__device__ int32_t KeepBest(const Score& score, int32_t count, int32_t wanted, int32_t* out,
                            Shared& shared) {
  int32_t valid = 0, total = 0;
  for (int32_t i = threadIdx.x; i < count; i += kThreads) valid += score(i) != kNoEntry ? 1 : 0;
  SumBefore(valid, shared, total);
  const int32_t kept = min(total, wanted);
  // Numbers above `threshold`, and `equals` of those that are equal to it.
  uint32_t threshold = kNoEntry;
  int32_t equals = 0;
  if (total > wanted) {
    if (threadIdx.x == 0) {
      shared.prefix = 0;
      shared.wanted = wanted;
    }
    for (int shift = 24; shift >= 0; shift -= 8) {
      for (int d = threadIdx.x; d < kDigits; d += kThreads) shared.counts[d] = 0;
      __syncthreads();
      const uint32_t prefix = shared.prefix;
      for (int32_t i = threadIdx.x; i < count; i += kThreads) {
        const uint32_t value = score(i);
        if (value == kNoEntry) continue;
        if (shift < 24 && value >> (shift + 8) != prefix) continue;
        atomicAdd(&shared.counts[value >> shift & 0xFF], 1);
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        int32_t left = shared.wanted;
        int digit = kDigits - 1;
        while (shared.counts[digit] < left) left -= shared.counts[digit--];
        shared.prefix = prefix << 8 | static_cast<uint32_t>(digit);
        shared.wanted = left;
      }
      __syncthreads();
    }
    threshold = shared.prefix;
    equals = shared.wanted;
  }
  int32_t written = 0, seen_equals = 0;
  for (int32_t begin = 0; begin < count; begin += kThreads) {
    const int32_t i = begin + static_cast<int32_t>(threadIdx.x);
    const uint32_t value = i < count ? score(i) : kNoEntry;
    const bool equal = total > wanted && value == threshold;
    int32_t all_equals = 0, all_kept = 0;
    const int32_t equals_before = SumBefore(equal ? 1 : 0, shared, all_equals);
    const bool keep = equal ? seen_equals + equals_before < equals : value > threshold;
    const int32_t before = SumBefore(keep ? 1 : 0, shared, all_kept);
    if (keep) out[written + before] = i;
    written += all_kept;
    seen_equals += all_equals;
  }
  return kept;
}

__global__ void __launch_bounds__(kThreads) EntriesKernel(const __grid_constant__ IndexPass pass) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  __shared__ Shared shared;
  const IndexerArgs& args = pass.args;
  const int64_t token = pass.first_token + static_cast<int64_t>(blockIdx.x);
  const int32_t visible = (args.positions[token] + 1) / args.ratio;
  int32_t* out = args.selected + token * args.top_k;
  if (args.candidate_use != CandidateUse::kConsume && visible <= args.top_k) {
    for (int32_t i = threadIdx.x; i < visible; i += kThreads) out[i] = i;
    if (threadIdx.x == 0) args.counts[token] = visible;
    return;
  }
  const uint32_t* scores = pass.scores + static_cast<int64_t>(blockIdx.x) * pass.max_entries;
  const int32_t kept =
      KeepBest([&](int32_t i) { return scores[i]; }, visible, args.top_k, out, shared);
  if (threadIdx.x == 0) args.counts[token] = kept;
}

__global__ void __launch_bounds__(kThreads) BlocksKernel(const __grid_constant__ IndexPass pass) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  __shared__ Shared shared;
  const IndexerArgs& args = pass.args;
  const IndexCandidates& candidates = args.candidates;
  const int64_t token = pass.first_token + static_cast<int64_t>(blockIdx.x);
  const int32_t visible = (args.positions[token] + 1) / args.ratio, size = candidates.block_size;
  const int32_t blocks = (visible + size - 1) / size;
  int32_t* out = candidates.blocks + token * candidates.max_blocks;
  if (blocks <= candidates.max_blocks) {
    for (int32_t i = threadIdx.x; i < blocks; i += kThreads) out[i] = i;
    if (threadIdx.x == 0) candidates.counts[token] = blocks;
    return;
  }
  // In place, a turn of blocks at a time: block b is written where entry b was, which by then every
  // thread has read.
  uint32_t* scores = pass.scores + static_cast<int64_t>(blockIdx.x) * pass.max_entries;
  for (int32_t begin = 0; begin < blocks; begin += kThreads) {
    const int32_t b = begin + static_cast<int32_t>(threadIdx.x);
    uint32_t most = kNoEntry;
    for (int32_t e = b * size; b < blocks && e < min((b + 1) * size, visible); ++e) {
      most = max(most, scores[e]);
    }
    __syncthreads();
    if (b < blocks) scores[b] = b == blocks - 1 ? 0xFFFFFFFFu : most;
    __syncthreads();
  }
  const int32_t kept =
      KeepBest([&](int32_t i) { return scores[i]; }, blocks, candidates.max_blocks, out, shared);
  if (threadIdx.x == 0) candidates.counts[token] = kept;
}

}  // namespace

void KeepBestEntries(Stream stream, const IndexPass& pass) {
  LaunchDependent(stream, EntriesKernel, static_cast<unsigned>(pass.num_tokens), kThreads, 0, pass);
  CUDA_CHECK_LAUNCH(stream, "keep_best_entries", pass.num_tokens, pass.max_entries);
}

void KeepBestBlocks(Stream stream, const IndexPass& pass) {
  LaunchDependent(stream, BlocksKernel, static_cast<unsigned>(pass.num_tokens), kThreads, 0, pass);
  CUDA_CHECK_LAUNCH(stream, "keep_best_blocks", pass.num_tokens, pass.max_entries);
}

}  // namespace hayate::ops::sm90
