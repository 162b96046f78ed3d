#include "sched/step_times.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace hayate::sched {
namespace {

TEST(StepTimes, KnowNothingBeforeBothKindsOfStepsWereSeen) {
  StepTimes times;
  EXPECT_FALSE(times.DoublingTokens(8));
  times.Add(8, 100, 5000.0);  // how much of this is the answers' is not known
  EXPECT_FALSE(times.DoublingTokens(8));
  times.Add(8, 0, 1000.0);
  EXPECT_FALSE(times.DoublingTokens(8));
  times.Add(8, 100, 2000.0);
  EXPECT_EQ(times.DoublingTokens(8), 100);
  EXPECT_FALSE(times.DoublingTokens(3));  // fewer rows may be quicker
}

TEST(StepTimes, MoreRowsThanSeenTakeAtLeastAsLong) {
  StepTimes times;
  times.Add(2, 0, 1000.0);
  times.Add(64, 0, 3000.0);
  times.Add(64, 10, 3100.0);
  EXPECT_EQ(times.DoublingTokens(1'000'000), 300);
  EXPECT_EQ(times.DoublingTokens(64), 300);
  EXPECT_EQ(times.DoublingTokens(63), 100);
  EXPECT_EQ(times.DoublingTokens(2), 100);
}

TEST(StepTimes, FollowAPromptTokenUpAtOnceAndDownSlowly) {
  StepTimes times;
  times.Add(1, 0, 1000.0);
  times.Add(1, 50, 1500.0);
  times.Add(1, 50, 1750.0);
  EXPECT_EQ(times.DoublingTokens(1), 66);
  for (int i = 0; i < 60; ++i) times.Add(1, 10, 1000.0);  // too few to say what many cost
  EXPECT_EQ(times.DoublingTokens(1), 66);
  times.Add(1, 50, 1500.0);
  EXPECT_LT(times.DoublingTokens(1), 80);
  for (int i = 0; i < 60; ++i) times.Add(1, 50, 1500.0);
  EXPECT_NEAR(static_cast<double>(*times.DoublingTokens(1)), 100.0, 1.0);
}

TEST(StepTimes, AStepThatWasHeldUpIsForgottenSoon) {
  StepTimes times;
  times.Add(1, 0, 1000.0);
  times.Add(1, 10, 1100.0);
  times.Add(1, 10, 900'000.0);
  times.Add(1, 0, 900'000.0);
  EXPECT_GE(times.DoublingTokens(1), 50);
  EXPECT_LE(times.DoublingTokens(1), 70);
}

TEST(StepTimes, WhatWasSeenLongAgoSaysNothing) {
  StepTimes times;
  times.Add(4, 0, 1000.0);
  for (int i = 0; i < 256; ++i) times.Add(4, 10, 1100.0);
  EXPECT_TRUE(times.DoublingTokens(4));
  times.Add(0, 500, 9000.0);  // nobody waited
  EXPECT_FALSE(times.DoublingTokens(4));
  times.Add(4, 0, 5000.0);
  EXPECT_NEAR(static_cast<double>(*times.DoublingTokens(4)), 500.0, 1.0);
}

TEST(StepTimes, PromptTokensThatCostNothingDoubleNothing) {
  StepTimes times;
  times.Add(1, 0, 1000.0);
  times.Add(1, 10, 900.0);
  EXPECT_EQ(times.DoublingTokens(1), std::numeric_limits<int32_t>::max());
  times.Add(1, 0, 0.0);  // not measured
  times.Add(1, 10, 1100.0);
  EXPECT_NEAR(static_cast<double>(*times.DoublingTokens(1)), 100.0, 1.0);
}

}  // namespace
}  // namespace hayate::sched
