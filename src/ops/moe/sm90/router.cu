// Routes  a warp per token: scores in shared memory, then the largest one after the other
// Order   sums of a row depend on E and K alone
// Bound   latency: K turns of E / 32 comparisons a lane

#include "ops/moe/sm90/router.h"

#include <cuda_runtime.h>

#include "ops/detail/sm90/eight.cuh"
#include "ops/detail/sm90/launch.cuh"

namespace hayate::ops::sm90 {
namespace {

constexpr unsigned kAll = 0xFFFFFFFFu;
constexpr float kNever = -INFINITY;

__device__ float ScoreOf(RouterScore score, float z) {
  if (score == RouterScore::kSigmoid) return 1.0f / (1.0f + expf(-z));
  if (score == RouterScore::kSqrtSoftplus) return sqrtf(z > 20.0f ? z : log1pf(expf(z)));
  return z;
}

// Scores of one token.
__device__ void FillScores(const RouterConfig& config, const float* z, float* scores, int lane) {
  const int count = config.num_experts;
  for (int e = lane; e < count; e += 32) scores[e] = ScoreOf(config.score, z[e]);
  if (config.score != RouterScore::kSoftmax) return __syncwarp();
  float most = kNever;
  for (int e = lane; e < count; e += 32) most = fmaxf(most, scores[e]);
  most = WarpMax(most);
  float sum = 0.0f;
  for (int e = lane; e < count; e += 32) sum += scores[e] = expf(scores[e] - most);
  sum = WarpSum(sum);
  for (int e = lane; e < count; e += 32) scores[e] /= sum;
  __syncwarp();
}

// Index of the largest of values[0, count) that is not taken, of equals the smallest; of NaNs some.
// Marks it.
__device__ int TakeBest(const float* values, int count, uint8_t* taken, int lane) {
  float best = kNever;
  int index = count;
  for (int i = lane; i < count; i += 32) {
    if (taken[i] != 0) continue;
    if (index < count && !(values[i] > best)) continue;
    best = values[i];
    index = i;
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const float other = __shfl_xor_sync(kAll, best, step);
    const int other_index = __shfl_xor_sync(kAll, index, step);
    const bool better = other_index < count && (index == count || other > best ||
                                                (!(best > other) && other_index < index));
    if (!better) continue;
    best = other;
    index = other_index;
  }
  // With NaNs the lanes may disagree.
  index = __shfl_sync(kAll, index, 0);
  if (lane == 0) taken[index] = 1;
  __syncwarp();
  return index;
}

// Marks the experts outside of the best groups as taken. `sums` and `kept` have num_groups entries.
__device__ void DropGroups(const RouterConfig& config, const float* choice, uint8_t* taken,
                           float* sums, uint8_t* kept, int lane) {
  if (config.top_groups == config.num_groups) return;
  const int size = config.num_experts / config.num_groups;
  for (int g = lane; g < config.num_groups; g += 32) {
    float first = kNever, second = kNever;
    for (int e = g * size; e < (g + 1) * size; ++e) {
      second = fmaxf(second, fminf(first, choice[e]));
      first = fmaxf(first, choice[e]);
    }
    sums[g] = size > 1 ? first + second : first;
    kept[g] = 0;
  }
  __syncwarp();
  for (int i = 0; i < config.top_groups; ++i) TakeBest(sums, config.num_groups, kept, lane);
  for (int e = lane; e < config.num_experts; e += 32) {
    if (kept[e / size] == 0) taken[e] = 1;
  }
  __syncwarp();
}

// By one lane, in order of j.
__device__ void FillWeights(const RouterConfig& config, const float* scores, const int32_t* experts,
                            float* weights) {
  float most = kNever, sum = 0.0f;
  for (int j = 0; j < config.top_k; ++j) most = fmaxf(most, scores[experts[j]]);
  const bool softmax = config.score == RouterScore::kSoftmaxOfChosen;
  for (int j = 0; j < config.top_k; ++j) {
    const float score = scores[experts[j]];
    const float weight = softmax ? expf(score - most) : score;
    weights[j] = weight;
    sum += weight;
  }
  const float divisor = softmax ? sum : config.renormalise ? sum + config.sum_epsilon : 1.0f;
  for (int j = 0; j < config.top_k; ++j) weights[j] = weights[j] / divisor * config.scale;
}

// Shared: scores [E], choice [E], sums [G] f32, then taken [E] and kept [G] bytes.
int SharedBytes(const RouterConfig& config) {
  return config.num_experts * 9 + config.num_groups * 5;
}

__global__ void __launch_bounds__(32)
    RouteKernel(const __grid_constant__ RouterConfig config, const float* logits,
                const float* choice_bias, const int32_t* listed, const int32_t* token_ids,
                int32_t* experts, float* weights) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  extern __shared__ float shared[];
  const int lane = threadIdx.x, count = config.num_experts;
  float* scores = shared;
  float* choice = scores + count;
  float* sums = choice + count;
  uint8_t* taken = reinterpret_cast<uint8_t*>(sums + config.num_groups);
  uint8_t* kept = taken + count;
  const int64_t t = blockIdx.x, k = config.top_k;
  experts += t * k;
  weights += t * k;
  FillScores(config, logits + t * count, scores, lane);
  if (listed != nullptr) {
    for (int j = lane; j < k; j += 32) experts[j] = listed[token_ids[t] * k + j];
  } else {
    for (int e = lane; e < count; e += 32) {
      choice[e] = choice_bias == nullptr ? scores[e] : scores[e] + choice_bias[e];
      taken[e] = 0;
    }
    __syncwarp();
    DropGroups(config, choice, taken, sums, kept, lane);
    for (int j = 0; j < k; ++j) {
      const int best = TakeBest(choice, count, taken, lane);
      if (lane == 0) experts[j] = best;
    }
  }
  __syncwarp();
  if (lane == 0) FillWeights(config, scores, experts, weights);
}

}  // namespace

void Route(Stream stream, const RouterConfig& config, const RouteArgs& args) {
  constexpr int kSharedWithoutAsking = 48 << 10;
  const int shared = SharedBytes(config);
  if (args.logits.rows() == 0) return;
  if (shared > kSharedWithoutAsking) {
    CUDA_CHECK(
        stream.device,
        cudaFuncSetAttribute(RouteKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  }
  LaunchDependent(stream, RouteKernel, static_cast<unsigned>(args.logits.rows()), 32,
                  static_cast<size_t>(shared), config, args.logits.as<float>(), args.choice_bias,
                  args.listed, args.token_ids, args.experts, args.weights);
  CUDA_CHECK_LAUNCH(stream, "route", args.logits.rows(), config.num_experts, config.top_k);
}

}  // namespace hayate::ops::sm90
