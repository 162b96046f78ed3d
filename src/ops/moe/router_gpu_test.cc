#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/moe/router.h"
#include "ops/testing/gpu.h"

namespace hayate::ops {
namespace {

using testing::HostView;
using testing::RandomNormals;

using RouterGpuTest = testing::GpuTest;

struct Case {
  RouterConfig config;
  bool bias = false;
};
const Case kCases[] = {
    {{.score = RouterScore::kSoftmax, .num_experts = 128, .top_k = 8, .renormalise = true}},
    {{.score = RouterScore::kSoftmax, .num_experts = 60, .top_k = 4}},
    {{.score = RouterScore::kSoftmaxOfChosen, .num_experts = 32, .top_k = 4}, true},
    {{.score = RouterScore::kSigmoid,
      .num_experts = 256,
      .top_k = 8,
      .num_groups = 8,
      .top_groups = 4,
      .renormalise = true,
      .sum_epsilon = 1e-20f,
      .scale = 2.5f},
     true},
    {{.score = RouterScore::kSqrtSoftplus,
      .num_experts = 384,
      .top_k = 6,
      .renormalise = true,
      .scale = 1.5f},
     true},
    {{.score = RouterScore::kSigmoid, .num_experts = 7, .top_k = 7}},
    {{.score = RouterScore::kSigmoid,
      .num_experts = 96,
      .top_k = 2,
      .num_groups = 48,
      .top_groups = 1},
     true},
    {{.score = RouterScore::kSoftmax, .num_experts = 4096, .top_k = 64}},
    {{.score = RouterScore::kSoftmax, .num_experts = 1, .top_k = 1}},
};

TEST_F(RouterGpuTest, MatchesTheDefinition) {
  for (const Case& c : kCases) {
    const int64_t e = c.config.num_experts, k = c.config.top_k;
    for (const int64_t tokens : {1, 3, 200}) {
      std::vector<float> logits = RandomNormals(static_cast<size_t>(tokens * e), 1);
      std::vector<float> bias = RandomNormals(static_cast<size_t>(e), 2);
      for (float& value : bias) value *= 0.2f;
      std::vector<int32_t> experts(static_cast<size_t>(tokens * k));
      std::vector<float> weights(experts.size());
      RouteReference(c.config, {.logits = HostView(logits, tokens),
                                .choice_bias = c.bias ? bias.data() : nullptr,
                                .experts = experts.data(),
                                .weights = weights.data()});
      const auto device_logits = ToDevice(logits);
      const auto device_bias = ToDevice(bias);
      const auto out_experts = Poisoned<int32_t>(experts.size());
      const auto out_weights = Poisoned<float>(weights.size());
      Route(stream_, c.config,
            {.logits = device_logits.View(DType::kF32, {tokens, e}),
             .choice_bias = c.bias ? device_bias.data() : nullptr,
             .experts = out_experts.data(),
             .weights = out_weights.data()});
      ASSERT_EQ(ToHost(out_experts), experts) << e << " experts, " << tokens << " tokens";
      const std::vector<float> got = ToHost(out_weights);
      // Scores are of order 1 and come from a few roundings and an exponential.
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_NEAR(got[i], weights[i], 2e-6f * (1.0f + std::abs(weights[i])))
            << e << " experts, choice " << i;
      }
    }
  }
}

TEST_F(RouterGpuTest, EqualScoresGoToTheSmallerIndex) {
  const RouterConfig config = {.score = RouterScore::kSigmoid, .num_experts = 100, .top_k = 40};
  const auto logits = ToDevice(std::vector<float>(100, 0.5f));
  const auto experts = Poisoned<int32_t>(40);
  const auto weights = Poisoned<float>(40);
  Route(stream_, config,
        {.logits = logits.View(DType::kF32, {1, 100}),
         .experts = experts.data(),
         .weights = weights.data()});
  const std::vector<int32_t> got = ToHost(experts);
  for (int32_t i = 0; i < 40; ++i) ASSERT_EQ(got[static_cast<size_t>(i)], i);
}

// Whatever a broken activation brings: experts stay in range and differ.
TEST_F(RouterGpuTest, NansChooseExpertsThatExist) {
  const RouterConfig config = {.score = RouterScore::kSoftmax, .num_experts = 64, .top_k = 8};
  const auto logits = ToDevice(std::vector<float>(64, NAN));
  const auto experts = Poisoned<int32_t>(8);
  const auto weights = Poisoned<float>(8);
  Route(stream_, config,
        {.logits = logits.View(DType::kF32, {1, 64}),
         .experts = experts.data(),
         .weights = weights.data()});
  std::vector<int32_t> got = ToHost(experts);
  std::ranges::sort(got);
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(got[i] >= 0 && got[i] < 64);
    ASSERT_TRUE(i == 0 || got[i] != got[i - 1]);
  }
}

TEST_F(RouterGpuTest, ListedExpertsFollowTheTokenId) {
  const RouterConfig config = {
      .score = RouterScore::kSqrtSoftplus, .num_experts = 16, .top_k = 3, .renormalise = true};
  std::vector<float> logits = RandomNormals(5 * 16, 3);
  std::vector<int32_t> listed(20 * 3), ids = {19, 0, 7, 7, 3}, experts(15);
  for (size_t i = 0; i < listed.size(); ++i) listed[i] = static_cast<int32_t>(i * 5 % 16);
  std::vector<float> weights(15);
  RouteReference(config, {.logits = HostView(logits, 5),
                          .listed = listed.data(),
                          .token_ids = ids.data(),
                          .experts = experts.data(),
                          .weights = weights.data()});
  const auto device_logits = ToDevice(logits);
  const auto device_listed = ToDevice(listed), device_ids = ToDevice(ids);
  const auto out_experts = Poisoned<int32_t>(15);
  const auto out_weights = Poisoned<float>(15);
  Route(stream_, config,
        {.logits = device_logits.View(DType::kF32, {5, 16}),
         .listed = device_listed.data(),
         .token_ids = device_ids.data(),
         .experts = out_experts.data(),
         .weights = out_weights.data()});
  EXPECT_EQ(ToHost(out_experts), experts);
  const std::vector<float> got = ToHost(out_weights);
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], weights[i], 2e-6f);
}

}  // namespace
}  // namespace hayate::ops
