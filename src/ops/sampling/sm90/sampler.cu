// Sampling of any rows: a cluster of 8 blocks holds a row in its shared memory, so logits are read
// from global memory once, and everything after that happens on the chip.
//
//   load      the slice into shared memory, the highest raw logit; adjustments, the highest of
//   those cut       top-k by a bound from the warps' highest logits and a list; top-p by one
//   histogram of
//             masses and a list (select.cuh)
//   draw      Σ of the masses kept, then the block, the warp and the id that the random number
//             falls on, in order of id
//   score     only for rows with log-probabilities: total mass, rank, the n best, of raw logits
//
// Resources: V/8 floats and 21 KB of shared memory a block; two blocks of 512 threads an SM at
// V = 152K. Traffic: 4·V bytes a row, 8·V with penalties. Bound: memory for greedy and top-k rows,
// arithmetic (about 25 instructions an id and pass over the masses) where every mass is summed.

#include "base/align.h"
#include "base/check.h"
#include "ops/sampling/sampling.h"
#include "ops/sampling/sm90/device_sampler.h"
#include "ops/sampling/sm90/row_slice.cuh"
#include "ops/sampling/sm90/select.cuh"

namespace hayate::ops::sm90 {
namespace {

// Top-k up to this starts from the warps' highest logits; there are 128 of them.
constexpr int kMaxGuessedTopK = 96;
// Nats below the highest logit: beyond the first nothing has a mass, within the second lies nearly
// always what top-p keeps.
constexpr float kMasslessNats = 28.6f;
constexpr float kLikelyNats = 12.0f;

// The highest key whose logit is surely below `nats` under the highest.
__device__ __forceinline__ uint64_t KeyBelow(const SamplerRow& spec, float highest, float nats) {
  // A few units of the last place of `highest` cover the rounding of the difference.
  const float logit = highest - nats * spec.temperature - fabsf(highest) * 0x1p-21f;
  return KeyOf(logit, 0xFFFFFFFFll);
}

// What top-k and top-p leave: keys from the returned one up.
__device__ __forceinline__ uint64_t CutRow(Row& row, const SamplerRow& spec,
                                           const MassScale& scale) {
  const uint64_t floor = KeyBelow(spec, scale.highest, kMasslessNats);
  uint64_t cutoff = 0;
  const bool top_k = spec.top_k > 0 && spec.top_k < row.vocab_size;
  if (top_k) {
    uint64_t guess = spec.top_k <= kMaxGuessedTopK ? GuessOfHighest(row, spec.top_k) : 0;
    const bool few = guess >= floor;
    guess = few ? guess : floor;
    cutoff =
        Cut<Weight::kCount>(row, scale, floor, guess, few, static_cast<uint64_t>(spec.top_k), 0.0f);
  }
  if (spec.top_p < 1.0f) {
    const uint64_t likely = KeyBelow(spec, scale.highest, kLikelyNats);
    cutoff = top_k ? Cut<Weight::kMass>(row, scale, cutoff, cutoff, true, 0, spec.top_p)
                   : Cut<Weight::kMass>(row, scale, floor, likely, false, 0, spec.top_p);
  }
  return cutoff;
}

// The id on which the random number falls among the masses of at least `least` from `cutoff` up.
__device__ __forceinline__ int32_t DrawId(Row& row, const SamplerRow& spec, const MassScale& scale,
                                          uint64_t cutoff) {
  const uint64_t least = sampling::LeastMass(spec.min_p);
  const float least_logit = LogitOf(cutoff);
  const auto kept = [&](int i) -> uint64_t {
    const float logit = row.x[i];
    if (logit < least_logit || row.KeyAt(i) < cutoff) return 0;
    const uint64_t mass = scale.Of(logit);
    return mass < least ? 0 : mass;
  };
  // A warp sums a run of neighbours, so that the drawn id lies in one warp's run.
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int run = AlignUp(CeilDiv(row.count, kWarps), 32);
  const int end = min(row.count, (warp + 1) * run);
  uint64_t sum = 0;
  for (int i = warp * run + lane; i < end; i += 32) sum += kept(i);
  const uint64_t block = BlockSum(row, sum);
  const uint64_t blocks = Exchange(row, block, 0).a;
  uint64_t left = sampling::RandomBelow(spec.seed, spec.position, SumOfBlocks(blocks));
  uint32_t owner = 0;
  while (left >= FromLane(blocks, static_cast<int>(owner))) {
    left -= FromLane(blocks, static_cast<int>(owner++));
  }
  if (row.rank == owner) {
    int drawn = 0;
    while (left >= row.shared->warp_sums[drawn]) left -= row.shared->warp_sums[drawn++];
    if (warp == drawn) {
      for (int first = warp * run;; first += 32) {
        const uint64_t mass = first + lane < end ? kept(first + lane) : 0;
        const uint64_t prefix = WarpPrefixSum(mass);
        if (prefix > left && prefix - mass <= left) {
          row.shared->found[0] = static_cast<uint64_t>(row.begin + first + lane);
        }
        const uint64_t all = FromLane(prefix, 31);
        if (left < all) break;
        left -= all;
      }
    }
  }
  return static_cast<int32_t>(FoundBy(row, owner).a);
}

__device__ __forceinline__ int32_t LowestIdOf(Row& row, float logit) {
  uint64_t best = 0;
  for (int i = threadIdx.x; i < row.count; i += kThreads) {
    if (row.x[i] == logit && best == 0) best = row.KeyAt(i);
  }
  return IdOf(MaxOfBlocks(Exchange(row, BlockMax(row, best), 0).a));
}

// Log-probability, rank and the best alternatives, of a row of raw logits.
__device__ __forceinline__ void ScoreRow(Row& row, const SamplerRow& spec, float highest, int slice,
                                         SampledToken* result, int32_t* top_ids,
                                         float* top_logprobs) {
  const uint32_t owner = static_cast<uint32_t>(result->token / slice);
  __syncthreads();
  if (row.rank == owner && threadIdx.x == 0) {
    row.shared->found[0] = row.KeyAt(result->token - row.begin);
  }
  const uint64_t key = FoundBy(row, owner).a;
  const float logit = LogitOf(key);
  const MassScale scale = {highest, 1.0f};
  uint64_t mass = 0, above = 0;
  for (int i = threadIdx.x; i < row.count; i += kThreads) {
    mass += scale.Of(row.x[i]);
    above += row.x[i] >= logit && row.KeyAt(i) > key;
  }
  mass = BlockSum(row, mass);
  above = BlockSum(row, above);
  const Gathered blocks = Exchange(row, mass, above);
  const uint64_t total = SumOfBlocks(blocks.a);
  result->rank = static_cast<int32_t>(SumOfBlocks(blocks.b));
  result->logprob = sampling::LogProbability(logit, highest, total);
  const int n = min(min(spec.num_logprobs, kMaxTopLogprobs), row.vocab_size);
  if (n <= 0) return;
  const uint64_t guess = GuessOfHighest(row, n);
  const uint64_t cutoff =
      Cut<Weight::kCount>(row, scale, 0, guess, true, static_cast<uint64_t>(n), 0.0f);
  const int size = GatherKeys(row, cutoff, ~uint64_t{0});
  if (row.rank != 0) return;
  SortMerged(row, size);
  if (threadIdx.x < n) {
    const uint64_t best = row.shared->list[threadIdx.x];
    top_ids[threadIdx.x] = IdOf(best);
    top_logprobs[threadIdx.x] = sampling::LogProbability(LogitOf(best), highest, total);
  }
}

// The token of a row that draws one. `raw` is what the raw logits gave; bad rows take token 0.
__device__ __forceinline__ SampledToken DrawRow(Row& row, const SampleRowsArgs& args,
                                                const SamplerRow& spec, const RowHighest& raw) {
  RowHighest adjusted = raw;
  if (!raw.bad && Adjusts(spec)) adjusted = AdjustSlice(row, args, spec);
  SampledToken result;
  result.bad_logits = raw.bad || adjusted.bad || adjusted.logit == -kInfinity;
  if (result.bad_logits) return result;
  if (spec.temperature < kGreedyTemperature) {
    result.token = LowestIdOf(row, adjusted.logit);
  } else {
    const MassScale scale = {adjusted.logit, 1.0f / spec.temperature};
    result.token = DrawId(row, spec, scale, CutRow(row, spec, scale));
  }
  return result;
}

__global__ void __launch_bounds__(kThreads, 2)
    SampleKernel(const __grid_constant__ SampleRowsArgs args, int slice, bool by_four) {
  extern __shared__ float4 slice_memory[];
  __shared__ Shared shared;
  AllowNextLaunch();
  WaitForPriorLaunches();
  const int index = static_cast<int>(blockIdx.x) / kBlocks;
  const SamplerRow spec = args.rows[index];
  if (spec.logits_row < 0) return;
  Row row = {.x = reinterpret_cast<float*>(slice_memory),
             .vocab_size = args.vocab_size,
             .rank = ClusterRank(),
             .shared = &shared,
             .parity = 0};
  row.begin = min(static_cast<int>(row.rank) * slice, args.vocab_size);
  row.count = min(slice, args.vocab_size - row.begin);

  const float* logits = args.logits + int64_t{spec.logits_row} * args.vocab_size;
  const bool scores = spec.scored_token >= 0;
  int32_t* counts = nullptr;
  if (!scores && spec.counts_row >= 0) {
    counts = args.state.counts + int64_t{spec.counts_row} * args.vocab_size;
  }
  const RowHighest raw = LoadSlice(row, logits, by_four, counts, spec);
  SampledToken result;
  if (scores) {
    result.token = spec.scored_token;
    result.bad_logits = raw.bad || raw.logit == -kInfinity;
  } else {
    result = DrawRow(row, args, spec, raw);
  }
  if (!result.bad_logits && spec.num_logprobs >= 0) {
    if (!scores && Adjusts(spec)) LoadSlice(row, logits, by_four, nullptr, spec);
    ScoreRow(row, spec, raw.logit, slice, &result, args.top_ids + index * kMaxTopLogprobs,
             args.top_logprobs + index * kMaxTopLogprobs);
  }
  MeetBlocks();  // no block may end while another reads its memory
  if (row.rank != 0 || threadIdx.x != 0) return;
  args.results[index] = result;
  if (scores) return;
  if (spec.slot >= 0) args.state.last_tokens[spec.slot] = result.token;
  if (counts != nullptr) ++counts[result.token];
}

}  // namespace

void SampleAnyRows(Stream stream, const SampleRowsArgs& args) {
  if (args.num_rows == 0) return;
  CHECK_LE(args.vocab_size, kMaxSamplerVocab);
  const int slice = AlignUp(CeilDiv(args.vocab_size, kBlocks), 4);
  const auto bytes = static_cast<size_t>(slice) * sizeof(float);
  CUDA_CHECK(stream.device,
             cudaFuncSetAttribute(SampleKernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(bytes)));
  const bool by_four =
      args.vocab_size % 4 == 0 && reinterpret_cast<uintptr_t>(args.logits) % 16 == 0;
  LaunchClusters(stream, SampleKernel, static_cast<unsigned>(args.num_rows), kBlocks, kThreads,
                 bytes, args, slice, by_four);
  CUDA_CHECK_LAUNCH(stream, "sample_rows", args.num_rows, args.vocab_size);
}

}  // namespace hayate::ops::sm90
