#include "sched/step_times.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

#include "base/rng.h"

namespace hayate::sched {
namespace {

// 4 ms a step, 20 µs a row, 30 ns a key; 0.5 ms where there are prompts, 16 µs a token of theirs
// and 0.4 µs a position.
double DeviceNs(const StepLoad& load) {
  double ns = 4e6 + 20e3 * load.decodes + 30.0 * static_cast<double>(load.keys);
  if (load.prompt_tokens > 0) ns += 5e5 + 16e3 * load.prompt_tokens + 400.0 * load.position;
  return ns;
}

double PlainNs(StepLoad load) {
  load.prompt_tokens = 0;
  return DeviceNs(load);
}

StepLoad SomeLoad(Rng& rng) {
  StepLoad load{.decodes = rng.Between(1, 64)};
  load.keys = int64_t{load.decodes} * rng.Between(100, 1500);
  if (rng.Below(3) == 0) return load;
  load.prompt_tokens = rng.Between(16, 320);
  load.position = rng.Between(0, 1000);
  return load;
}

TEST(StepTimes, KnowNothingBeforeBothKindsOfStepsWereSeen) {
  StepTimes times;
  const StepLoad plain{.decodes = 8, .keys = 800};
  StepLoad mixed = plain;
  mixed.prompt_tokens = 256;
  EXPECT_FALSE(times.PromptTokensWithin(plain, 2.0));
  times.Add(mixed, DeviceNs(mixed));  // how much of this is the answers' is not known
  EXPECT_FALSE(times.PromptTokensWithin(plain, 2.0));
  times.Add(plain, DeviceNs(plain));
  EXPECT_TRUE(times.PromptTokensWithin(plain, 2.0));
  times.Add({.decodes = 0, .prompt_tokens = 100}, 1e12);  // nobody waited
  times.Add(plain, 0.0);                                  // not measured
  mixed.prompt_tokens = *times.PromptTokensWithin(plain, 2.0);
  EXPECT_NEAR(DeviceNs(mixed), 2.0 * DeviceNs(plain), 0.2 * DeviceNs(plain));
}

TEST(StepTimes, ForetellStepsUnlikeThoseSeen) {
  StepTimes times;
  Rng rng(1);
  for (int i = 0; i < 400; ++i) {
    const StepLoad load = SomeLoad(rng);
    times.Add(load, DeviceNs(load) * (0.98 + 0.0004 * rng.Below(100)));
  }
  // Prompts eight times as long, and more rows.
  for (const int32_t position : {0, 4000, 8000}) {
    for (const int32_t decodes : {8, 64, 128}) {
      StepLoad load{.decodes = decodes, .keys = decodes * 1200, .position = position};
      load.prompt_tokens = times.PromptTokensWithin(load, 1.9).value();
      EXPECT_NEAR(DeviceNs(load) / PlainNs(load), 1.9, 0.1) << position << " " << decodes;
    }
  }
}

TEST(StepTimes, FollowADeviceThatBecomesSlower) {
  StepTimes times;
  Rng rng(2);
  for (int i = 0; i < 400; ++i) {
    const StepLoad load = SomeLoad(rng);
    times.Add(load, DeviceNs(load));
  }
  const auto slower_ns = [](const StepLoad& load) {
    return DeviceNs(load) + 16e3 * load.prompt_tokens;
  };
  for (int i = 0; i < 1000; ++i) {
    const StepLoad load = SomeLoad(rng);
    times.Add(load, slower_ns(load));
  }
  StepLoad load{.decodes = 40, .keys = 40'000};
  load.prompt_tokens = times.PromptTokensWithin(load, 2.0).value();
  EXPECT_NEAR(slower_ns(load) / PlainNs(load), 2.0, 0.1);
}

TEST(StepTimes, AStepThatWasHeldUpSaysLittle) {
  StepTimes times;
  Rng rng(3);
  for (int i = 0; i < 400; ++i) {
    const StepLoad load = SomeLoad(rng);
    times.Add(load, DeviceNs(load));
  }
  const StepLoad load{.decodes = 40, .keys = 40'000};
  const int32_t before = times.PromptTokensWithin(load, 2.0).value();
  times.Add({.decodes = 40, .keys = 40'000, .prompt_tokens = 100}, 9e10);
  times.Add(load, 9e10);
  EXPECT_NEAR(times.PromptTokensWithin(load, 2.0).value(), before, 0.1 * before);
}

// Of two steps in flight the host saw both end at once.
TEST(StepTimes, AStepThatSeemedToTakeNoTimeSaysLittle) {
  StepTimes times;
  Rng rng(6);
  for (int i = 0; i < 400; ++i) {
    const StepLoad load = SomeLoad(rng);
    times.Add(load, DeviceNs(load));
  }
  const StepLoad load{.decodes = 40, .keys = 40'000};
  const int32_t before = times.PromptTokensWithin(load, 2.0).value();
  times.Add(load, 2.0 * DeviceNs(load));
  times.Add(load, 50e3);
  times.Add({.decodes = 40, .keys = 40'000, .prompt_tokens = 200}, 50e3);
  EXPECT_NEAR(times.PromptTokensWithin(load, 2.0).value(), before, 0.1 * before);
}

TEST(StepTimes, WherePromptsTakeTooLongAsItIsNoTokenFits) {
  StepTimes times;
  Rng rng(4);
  for (int i = 0; i < 400; ++i) {
    const StepLoad load = SomeLoad(rng);
    times.Add(load, DeviceNs(load));
  }
  EXPECT_EQ(times.PromptTokensWithin({.decodes = 4, .keys = 400, .position = 100'000}, 2.0), 0);
}

// So it looks where a device becomes slower while steps take fewer and fewer.
TEST(StepTimes, WhereFewerPromptTokensTookLongerNoTokenFits) {
  StepTimes times;
  const StepLoad plain{.decodes = 4, .keys = 400};
  for (int i = 0; i < 8; ++i) times.Add(plain, 10e3);
  for (const int32_t tokens : {28, 16, 16, 14, 14, 14}) {
    StepLoad load = plain;
    load.prompt_tokens = tokens;
    times.Add(load, tokens == 28 ? 25e3 : 80e3);
  }
  EXPECT_EQ(times.PromptTokensWithin(plain, 1.9), 0);
}

TEST(StepTimes, PromptTokensThatCostNothingHaveNoBound) {
  StepTimes times;
  Rng rng(5);
  for (int i = 0; i < 100; ++i) {
    const StepLoad load = SomeLoad(rng);
    times.Add(load, PlainNs(load) - 10.0 * load.prompt_tokens);
  }
  EXPECT_EQ(times.PromptTokensWithin({.decodes = 4, .keys = 400}, 2.0), std::nullopt);
}

}  // namespace
}  // namespace hayate::sched
