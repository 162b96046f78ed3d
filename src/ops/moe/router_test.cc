#include "ops/moe/router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "base/rng.h"

namespace hayate::ops {
namespace {

struct Routed {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

using Function = void (*)(const RouterConfig&, const RouteArgs&);
void RouteOnCpu(const RouterConfig& config, const RouteArgs& args) { Route({}, config, args); }

Routed RunRouter(Function route, const RouterConfig& config, std::vector<float>& logits,
                 RouteArgs args = {}) {
  const int64_t tokens = std::ssize(logits) / config.num_experts;
  Routed out{std::vector<int32_t>(static_cast<size_t>(tokens * config.top_k)),
             std::vector<float>(static_cast<size_t>(tokens * config.top_k))};
  args.logits = TensorView{
      reinterpret_cast<std::byte*>(logits.data()), DType::kF32, {tokens, config.num_experts}};
  args.experts = out.experts.data();
  args.weights = out.weights.data();
  route(config, args);
  return out;
}

std::vector<float> Normal(size_t count, uint64_t seed, float sigma = 2.0f) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = sigma * rng.NextNormal();
  return values;
}

// Every token a shuffle of numbers about 1/32 apart, so that fp32 and double order them alike, with
// a jitter against equal sums of groups.
std::vector<float> Distinct(size_t tokens, size_t experts, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> values(tokens * experts);
  for (size_t t = 0; t < tokens; ++t) {
    float* row = &values[t * experts];
    for (size_t e = 0; e < experts; ++e) {
      row[e] = (static_cast<float>(e) - static_cast<float>(experts) / 2) / 32.0f +
               rng.NextFloat() / 64.0f;
      std::swap(row[e], row[rng.Below(static_cast<uint32_t>(e + 1))]);
    }
  }
  return values;
}

const RouterConfig kFamilies[] = {
    {.score = RouterScore::kSoftmax, .num_experts = 128, .top_k = 8, .renormalise = true},
    {.score = RouterScore::kSoftmax, .num_experts = 60, .top_k = 4},
    {.score = RouterScore::kSoftmaxOfChosen, .num_experts = 32, .top_k = 4},
    {.score = RouterScore::kSigmoid,
     .num_experts = 256,
     .top_k = 8,
     .num_groups = 8,
     .top_groups = 4,
     .renormalise = true,
     .sum_epsilon = 1e-20f,
     .scale = 2.5f},
    {.score = RouterScore::kSqrtSoftplus,
     .num_experts = 256,
     .top_k = 6,
     .renormalise = true,
     .scale = 1.5f},
    {.score = RouterScore::kSigmoid,
     .num_experts = 6,
     .top_k = 3,
     .num_groups = 6,
     .top_groups = 4},
    {.score = RouterScore::kSoftmax, .num_experts = 1, .top_k = 1},
};

TEST(Route, MatchesTheDefinitionForEveryFamily) {
  for (const RouterConfig& config : kFamilies) {
    ASSERT_TRUE(CheckRouter(config).ok());
    const size_t experts = static_cast<size_t>(config.num_experts);
    std::vector<float> logits = Distinct(200, experts, experts);
    const std::vector<float> bias = Normal(experts, 77, 0.3f);
    for (const float* choice_bias : {static_cast<const float*>(nullptr), bias.data()}) {
      const Routed got = RunRouter(RouteOnCpu, config, logits, {.choice_bias = choice_bias});
      const Routed want = RunRouter(RouteReference, config, logits, {.choice_bias = choice_bias});
      EXPECT_EQ(got.experts, want.experts);
      for (size_t i = 0; i < got.weights.size(); ++i) {
        // An exponential, a sum over at most E terms and a division, in fp32.
        ASSERT_NEAR(got.weights[i], want.weights[i], want.weights[i] * 2e-5f + 1e-12f);
      }
    }
  }
}

TEST(Route, EqualScoresGoToTheSmallerIndex) {
  const RouterConfig config = {.score = RouterScore::kSigmoid, .num_experts = 8, .top_k = 3};
  std::vector<float> logits = {1, 2, 2, 0, 2, 2, 1, 0};
  EXPECT_EQ(RunRouter(RouteOnCpu, config, logits).experts, (std::vector<int32_t>{1, 2, 4}));
}

TEST(Route, TheBiasChoosesButDoesNotWeigh) {
  const RouterConfig config = {.score = RouterScore::kSigmoid, .num_experts = 4, .top_k = 1};
  std::vector<float> logits = {3, 0, 0, 0};
  const float bias[] = {0, 0, 5, 0};
  const Routed routed = RunRouter(RouteOnCpu, config, logits, {.choice_bias = bias});
  EXPECT_EQ(routed.experts[0], 2);
  EXPECT_FLOAT_EQ(routed.weights[0], 0.5f);
}

TEST(Route, AListDecidesByTokenIdAndTheScoresWeigh) {
  const RouterConfig config = {
      .score = RouterScore::kSqrtSoftplus, .num_experts = 4, .top_k = 2, .renormalise = true};
  std::vector<float> logits = {25, 0, -1, 3, 25, 0, -1, 3};
  const int32_t listed[] = {0, 1, 3, 2, 1, 0}, ids[] = {2, 1};
  const Routed routed = RunRouter(RouteOnCpu, config, logits, {.listed = listed, .token_ids = ids});
  EXPECT_EQ(routed.experts, (std::vector<int32_t>{1, 0, 3, 2}));
  const double s1 = std::sqrt(std::log(2.0)), s0 = 5.0;
  EXPECT_NEAR(routed.weights[0], s1 / (s1 + s0), 1e-6);
  EXPECT_NEAR(routed.weights[1], s0 / (s1 + s0), 1e-6);
}

TEST(Route, NotANumberStillNamesDistinctExperts) {
  for (const RouterConfig& config : kFamilies) {
    std::vector<float> logits(static_cast<size_t>(config.num_experts),
                              std::numeric_limits<float>::quiet_NaN());
    const Routed routed = RunRouter(RouteOnCpu, config, logits);
    const std::set<int32_t> distinct(routed.experts.begin(), routed.experts.end());
    EXPECT_EQ(std::ssize(distinct), config.top_k);
    EXPECT_GE(*distinct.begin(), 0);
    EXPECT_LT(*distinct.rbegin(), config.num_experts);
  }
}

TEST(CheckRouter, NamesTheNumberThatDoesNotFit) {
  const auto message = [](const RouterConfig& config) {
    return std::string(CheckRouter(config).message());
  };
  EXPECT_NE(message({.num_experts = 8, .top_k = 9}).find("experts to a token is 9"),
            std::string::npos);
  EXPECT_NE(message({.num_experts = 10, .top_k = 2, .num_groups = 4}).find("4 equal groups"),
            std::string::npos);
  EXPECT_NE(message({.num_experts = 8, .top_k = 3, .num_groups = 4, .top_groups = 1})
                .find("fewer than 3"),
            std::string::npos);
}

}  // namespace
}  // namespace hayate::ops
