#include "ops/moe/router.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/moe/sm90/router.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

float Score(RouterScore score, float z) {
  switch (score) {
    case RouterScore::kSigmoid:
      return 1.0f / (1.0f + std::exp(-z));
    case RouterScore::kSqrtSoftplus:
      return std::sqrt(z > 20.0f ? z : std::log1p(std::exp(z)));
    case RouterScore::kSoftmax:
    case RouterScore::kSoftmaxOfChosen:
      break;
  }
  return z;
}

// s of one token, [E].
void FillScores(const RouterConfig& config, const float* z, float* scores) {
  const int32_t count = config.num_experts;
  for (int32_t e = 0; e < count; ++e) scores[e] = Score(config.score, z[e]);
  if (config.score != RouterScore::kSoftmax) return;
  const float max = *std::max_element(scores, scores + count);
  float sum = 0.0f;
  for (int32_t e = 0; e < count; ++e) sum += scores[e] = std::exp(scores[e] - max);
  for (int32_t e = 0; e < count; ++e) scores[e] /= sum;
}

// Index of the largest of values[0, count) that is not taken; with NaN around, of some that is not.
int32_t TakeBest(const float* values, int32_t count, bool* taken) {
  int32_t best = -1;
  for (int32_t i = 0; i < count; ++i) {
    if (taken[i]) continue;
    if (best < 0 || values[i] > values[best]) best = i;
  }
  taken[best] = true;
  return best;
}

// Marks the experts outside of the best groups as taken.
void DropGroups(const RouterConfig& config, const float* choice, bool* taken) {
  if (config.top_groups == config.num_groups) return;
  const int32_t size = config.num_experts / config.num_groups;
  std::array<float, kMaxExperts> sums;
  std::array<bool, kMaxExperts> kept{};
  for (int32_t g = 0; g < config.num_groups; ++g) {
    float first = kNever, second = kNever;
    for (int32_t e = g * size; e < (g + 1) * size; ++e) {
      second = std::max(second, std::min(first, choice[e]));
      first = std::max(first, choice[e]);
    }
    sums[static_cast<size_t>(g)] = size > 1 ? first + second : first;
  }
  for (int32_t i = 0; i < config.top_groups; ++i) {
    TakeBest(sums.data(), config.num_groups, kept.data());
  }
  for (int32_t e = 0; e < config.num_experts; ++e) {
    if (!kept[static_cast<size_t>(e / size)]) taken[e] = true;
  }
}

void Choose(const RouterConfig& config, const float* scores, const float* bias, int32_t* experts) {
  std::array<float, kMaxExperts> choice;
  std::array<bool, kMaxExperts> taken;
  std::fill_n(taken.begin(), config.num_experts, false);
  for (int32_t e = 0; e < config.num_experts; ++e) {
    choice[static_cast<size_t>(e)] = bias == nullptr ? scores[e] : scores[e] + bias[e];
  }
  DropGroups(config, choice.data(), taken.data());
  for (int32_t j = 0; j < config.top_k; ++j) {
    experts[j] = TakeBest(choice.data(), config.num_experts, taken.data());
  }
}

void FillWeights(const RouterConfig& config, const float* scores, const int32_t* experts,
                 float* weights) {
  float max = kNever, sum = 0.0f;
  for (int32_t j = 0; j < config.top_k; ++j) {
    weights[j] = scores[experts[j]];
    max = std::max(max, weights[j]);
  }
  const bool softmax = config.score == RouterScore::kSoftmaxOfChosen;
  for (int32_t j = 0; j < config.top_k; ++j) {
    if (softmax) weights[j] = std::exp(weights[j] - max);
    sum += weights[j];
  }
  const float divisor = softmax ? sum : config.renormalise ? sum + config.sum_epsilon : 1.0f;
  for (int32_t j = 0; j < config.top_k; ++j) weights[j] = weights[j] / divisor * config.scale;
}

}  // namespace

Status CheckRouter(const RouterConfig& config) {
  const auto outside = [](const char* what, int64_t value, int64_t low, int64_t high) {
    return Error(ErrorCode::kInvalidArgument, "{} is {}, must be in [{}, {}]", what, value, low,
                 high);
  };
  const int32_t experts = config.num_experts, groups = config.num_groups;
  if (experts < 1 || experts > kMaxExperts) {
    return outside("the number of experts", experts, 1, kMaxExperts);
  }
  const int32_t most = std::min(experts, kMaxExpertsPerToken);
  if (config.top_k < 1 || config.top_k > most) {
    return outside("the number of experts to a token", config.top_k, 1, most);
  }
  if (groups < 1 || groups > experts) return outside("the number of groups", groups, 1, experts);
  if (experts % groups != 0) {
    return Error(ErrorCode::kInvalidArgument, "{} experts do not make {} equal groups", experts,
                 groups);
  }
  if (config.top_groups < 1 || config.top_groups > groups) {
    return outside("the number of groups to a token", config.top_groups, 1, groups);
  }
  if (config.top_k > config.top_groups * (experts / groups)) {
    return Error(ErrorCode::kInvalidArgument, "{} groups of {} hold fewer than {} experts",
                 config.top_groups, experts / groups, config.top_k);
  }
  return OkStatus();
}

void Route(Stream stream, const RouterConfig& config, const RouteArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::Route(stream, config, args);
  }
  DCHECK_EQ(args.logits.cols(), config.num_experts);
  std::array<float, kMaxExperts> scores;
  const int64_t k = config.top_k;
  for (int64_t t = 0; t < args.logits.rows(); ++t) {
    int32_t* experts = args.experts + t * k;
    FillScores(config, args.logits.as<float>() + t * config.num_experts, scores.data());
    if (args.listed != nullptr) {
      std::copy_n(args.listed + args.token_ids[t] * k, k, experts);
    } else {
      Choose(config, scores.data(), args.choice_bias, experts);
    }
    FillWeights(config, scores.data(), experts, args.weights + t * k);
  }
}

}  // namespace hayate::ops
