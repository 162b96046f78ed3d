#include <gtest/gtest.h>

#include "core/request.h"
#include "core/step_executor.h"

namespace hayate {
namespace {

TEST(StepPlan, ClearKeepsTheStepNumberAndEmptiesEverythingElse) {
  StepPlan plan;
  plan.step = 7;
  plan.rows.push_back(
      {.slot = {1}, .begin = 3, .end = 4, .first_token = kLateToken, .samples = true});
  plan.num_tokens = 1;
  plan.Clear();
  EXPECT_TRUE(plan.empty());
  EXPECT_EQ(plan.num_tokens, 0);
  EXPECT_EQ(plan.step, 7u);
}

TEST(SamplingParams, TinyTemperaturesAreGreedy) {
  EXPECT_TRUE(SamplingParams{.temperature = 0.0f}.greedy());
  EXPECT_FALSE(SamplingParams{.temperature = 0.1f}.greedy());
  EXPECT_TRUE(SamplingParams{.presence_penalty = 0.5f}.has_penalties());
}

}  // namespace
}  // namespace hayate
