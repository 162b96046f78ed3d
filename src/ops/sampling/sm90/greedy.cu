// The highest logit of each row: the path of batches in which nobody asks for more. A cluster of 8
// blocks streams a row once. Bound: memory, 4·V bytes a row.

#include "base/align.h"
#include "ops/sampling/sm90/cluster_row.cuh"
#include "ops/sampling/sm90/device_sampler.h"

namespace hayate::ops::sm90 {
namespace {

constexpr float kInfinity = __builtin_huge_valf();

// The best of the logits that a thread sees, in order of id: equal ones keep the first.
struct Best {
  float logit = -kInfinity;
  int id = -1;
  bool bad = false;

  __device__ void See(float x, int at) {
    if (x > logit) logit = x, id = at;
    bad |= !(x < kInfinity);
  }
};

__device__ __forceinline__ Best BestOfSlice(const float* logits, int begin, int end, bool by_four) {
  Best best;
  if (!by_four) {
    for (int i = begin + static_cast<int>(threadIdx.x); i < end; i += kThreads) {
      best.See(logits[i], i);
    }
    return best;
  }
  constexpr int kInFlight = 4;
  for (int first = begin + static_cast<int>(threadIdx.x) * 4; first < end;
       first += kThreads * 4 * kInFlight) {
    float4 v[kInFlight];
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      const int i = first + j * kThreads * 4;
      if (i < end) v[j] = __ldcs(reinterpret_cast<const float4*>(logits + i));
    }
#pragma unroll
    for (int j = 0; j < kInFlight; ++j) {
      const int i = first + j * kThreads * 4;
      if (i >= end) continue;
      best.See(v[j].x, i), best.See(v[j].y, i + 1);
      best.See(v[j].z, i + 2), best.See(v[j].w, i + 3);
    }
  }
  return best;
}

__global__ void __launch_bounds__(kThreads, 3)
    GreedyKernel(const __grid_constant__ SampleRowsArgs args, int slice, bool by_four) {
  __shared__ Shared shared;
  AllowNextLaunch();
  WaitForPriorLaunches();
  const int index = static_cast<int>(blockIdx.x) / kBlocks;
  const int logits_row = args.rows[index].logits_row;
  if (logits_row < 0) return;
  Row row = {.vocab_size = args.vocab_size, .rank = ClusterRank(), .shared = &shared, .parity = 0};
  const int begin = min(static_cast<int>(row.rank) * slice, args.vocab_size);
  const Best best = BestOfSlice(args.logits + int64_t{logits_row} * args.vocab_size, begin,
                                min(begin + slice, args.vocab_size), by_four);
  const bool bad = __syncthreads_or(best.bad) != 0;
  const uint64_t key = BlockMax(row, best.id < 0 ? 0 : KeyOf(best.logit, best.id));
  const Gathered blocks = Exchange(row, key, bad ? 1 : 0);
  const uint64_t highest = MaxOfBlocks(blocks.a);
  const bool any_bad = MaxOfBlocks(blocks.b) != 0 || highest == 0;
  MeetBlocks();  // no block may end while another reads its memory
  if (row.rank != 0 || threadIdx.x != 0) return;
  SampledToken result;
  result.bad_logits = any_bad;
  result.token = any_bad ? 0 : IdOf(highest);
  args.results[index] = result;
  const int32_t slot = args.rows[index].slot;
  if (slot >= 0) args.state.last_tokens[slot] = result.token;
}

}  // namespace

void SampleGreedyRows(Stream stream, const SampleRowsArgs& args) {
  if (args.num_rows == 0) return;
  const int slice = AlignUp(CeilDiv(args.vocab_size, kBlocks), 4);
  const bool by_four =
      args.vocab_size % 4 == 0 && reinterpret_cast<uintptr_t>(args.logits) % 16 == 0;
  LaunchClusters(stream, GreedyKernel, static_cast<unsigned>(args.num_rows), kBlocks, kThreads, 0,
                 args, slice, by_four);
  CUDA_CHECK_LAUNCH(stream, "sample_greedy_rows", args.num_rows, args.vocab_size);
}

}  // namespace hayate::ops::sm90
