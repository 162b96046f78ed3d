// Guess: grid [N, columns / kThreads + 1]; the last block of a row computes its confidence, in fp32
// and in an order of its own. Map: a thread per column.

#include <cmath>

#include "base/align.h"
#include "base/check.h"
#include "ops/detail/sm90/launch.cuh"
#include "ops/drafting/sm90/drafting.h"
#include "ops/sparse_attention/sm90/vector.cuh"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 256;

struct GuessParams {
  float* logits;
  int64_t logits_stride;
  float* confidences;
  const float *base, *added, *states, *before, *proj;
  int64_t width, hidden, rank;
  int32_t block, guess;
};

__global__ void __launch_bounds__(kThreads) GuessKernel(const __grid_constant__ GuessParams p) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  __shared__ float scratch[kThreads / 32];
  const int64_t n = blockIdx.x, query = n * p.block + p.guess;
  if (blockIdx.y + 1 < gridDim.y) {
    const int64_t c = int64_t{blockIdx.y} * kThreads + threadIdx.x;
    if (c >= p.width) return;
    p.logits[n * p.logits_stride + c] = p.base[query * p.width + c] + p.added[n * p.width + c];
    return;
  }
  float sum = 0.0f;
  for (int64_t c = threadIdx.x; c < p.hidden; c += kThreads) {
    sum = fmaf(p.proj[c], p.states[query * p.hidden + c], sum);
  }
  for (int64_t c = threadIdx.x; c < p.rank; c += kThreads) {
    sum = fmaf(p.proj[p.hidden + c], p.before[n * p.rank + c], sum);
  }
  sum = BlockSum(sum, scratch);
  if (threadIdx.x == 0) p.confidences[n] = 1.0f / (1.0f + expf(-sum));
}

__global__ void __launch_bounds__(kThreads)
    MapKernel(float* logits, const float* from, const int32_t* source, int64_t vocab,
              int64_t width) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int64_t v = int64_t{blockIdx.y} * kThreads + threadIdx.x, n = blockIdx.x;
  if (v >= vocab) return;
  const int32_t column = source[v];
  if (column == MapLogitsArgs::kOthers) return;
  logits[n * vocab + v] = column == MapLogitsArgs::kNoSource ? -INFINITY : from[n * width + column];
}

}  // namespace

void MarkovGuess(Stream stream, const MarkovGuessArgs& args) {
  const int64_t count = args.before.rows(), width = args.added.cols();
  if (count == 0) return;
  const GuessParams params = {.logits = args.logits,
                              .logits_stride = args.logits_stride,
                              .confidences = args.confidences,
                              .base = args.base.as<float>(),
                              .added = args.added.as<float>(),
                              .states = args.states.as<float>(),
                              .before = args.before.as<float>(),
                              .proj = args.proj,
                              .width = width,
                              .hidden = args.states.cols(),
                              .rank = args.before.cols(),
                              .block = args.block,
                              .guess = args.guess};
  const dim3 grid(static_cast<unsigned>(count),
                  static_cast<unsigned>(CeilDiv(width, int64_t{kThreads}) + 1));
  LaunchDependent(stream, GuessKernel, grid, kThreads, 0, params);
  CUDA_CHECK_LAUNCH(stream, "markov_guess", count, width);
}

void MapLogits(Stream stream, const MapLogitsArgs& args) {
  const int64_t count = args.logits.rows(), vocab = args.logits.cols();
  if (count == 0) return;
  const dim3 grid(static_cast<unsigned>(count),
                  static_cast<unsigned>(CeilDiv(vocab, int64_t{kThreads})));
  LaunchDependent(stream, MapKernel, grid, kThreads, 0, args.logits.as<float>(),
                  args.from.as<float>(), args.source, vocab, args.from.cols());
  CUDA_CHECK_LAUNCH(stream, "map_logits", count, vocab);
}

}  // namespace hayate::ops::sm90
