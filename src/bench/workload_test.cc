#include "bench/workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

namespace hayate::bench {
namespace {

TEST(ArrivalTimes, ArePoissonOfTheAskedRate) {
  constexpr int kRequests = 20'000;
  constexpr double kRate = 8.0;
  const auto times = ArrivalTimes(kRequests, kRate, 7);
  ASSERT_EQ(times.size(), size_t{kRequests});
  EXPECT_EQ(times.front(), 0.0);
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  // Of an exponential law the mean gap has a standard error of mean / √n, and a share e^−1 of the
  // gaps exceeds the mean, with standard error √(p (1 − p) / n). Bounds are four of them.
  const double mean_gap = times.back() / (kRequests - 1);
  EXPECT_NEAR(mean_gap, 1 / kRate, 4 / kRate / 141.4);
  int longer = 0;
  for (size_t i = 1; i < times.size(); ++i) longer += times[i] - times[i - 1] > 1 / kRate;
  EXPECT_NEAR(longer / double{kRequests}, 0.3679, 4 * 0.0035);
}

TEST(ArrivalTimes, FollowFromTheSeed) {
  EXPECT_EQ(ArrivalTimes(50, 2.0, 3), ArrivalTimes(50, 2.0, 3));
  EXPECT_NE(ArrivalTimes(50, 2.0, 3), ArrivalTimes(50, 2.0, 4));
}

TEST(ArrivalTimes, AnInfiniteRateSendsAllAtOnce) {
  const auto times = ArrivalTimes(5, std::numeric_limits<double>::infinity(), 1);
  EXPECT_EQ(times, std::vector<double>(5, 0.0));
  EXPECT_TRUE(ArrivalTimes(0, 1.0, 1).empty());
}

RandomWorkload Ids(int32_t num_prompts) {
  return {.num_prompts = num_prompts, .vocab_size = 100, .seed = 5};
}

TEST(RandomWorkload, DrawsLengthsFromTheWholeRangeAndNothingElse) {
  RandomWorkload workload = Ids(2000);
  workload.input_tokens = 10;
  workload.output_tokens = 5;
  workload.range_ratio = 0.8;
  std::set<size_t> inputs;
  std::set<int32_t> outputs;
  for (const PlannedRequest& request : MakeRandomWorkload(workload)) {
    inputs.insert(request.prompt_ids.size());
    outputs.insert(request.output_tokens);
    for (const int32_t id : request.prompt_ids) ASSERT_TRUE(id >= 0 && id < 100) << id;
  }
  EXPECT_EQ(inputs, (std::set<size_t>{8, 9, 10}));
  EXPECT_EQ(outputs, (std::set<int32_t>{4, 5}));
}

TEST(RandomWorkload, NeverDrawsAnEmptyPromptOrAnswer) {
  RandomWorkload workload = Ids(500);
  workload.input_tokens = 2;
  workload.output_tokens = 1;
  workload.range_ratio = 0.0;
  for (const PlannedRequest& request : MakeRandomWorkload(workload)) {
    EXPECT_GE(request.prompt_ids.size(), 1u);
    EXPECT_EQ(request.output_tokens, 1);
  }
}

TEST(RandomWorkload, SharesAPrefixWithinAGroupOnly) {
  RandomWorkload workload = Ids(6);
  workload.input_tokens = 4;
  workload.shared_prefix_tokens = 20;
  workload.num_prefix_groups = 2;
  const auto requests = MakeRandomWorkload(workload);
  const auto prefix = [&](size_t i) {
    return std::vector(requests[i].prompt_ids.begin(), requests[i].prompt_ids.begin() + 20);
  };
  EXPECT_EQ(requests[0].prompt_ids.size(), 24u);
  EXPECT_EQ(prefix(0), prefix(2));
  EXPECT_EQ(prefix(1), prefix(5));
  EXPECT_NE(prefix(0), prefix(1));
  EXPECT_NE(requests[0].prompt_ids, requests[2].prompt_ids);
}

TEST(RandomWorkload, WritesAWordForEveryTokenOfATextPrompt) {
  RandomWorkload workload = Ids(3);
  workload.prompts = RandomWorkload::Prompts::kText;
  workload.vocab_size = 0;
  workload.input_tokens = 7;
  for (const PlannedRequest& request : MakeRandomWorkload(workload)) {
    EXPECT_TRUE(request.prompt_ids.empty());
    EXPECT_EQ(std::count(request.prompt_text.begin(), request.prompt_text.end(), ' '), 6);
  }
}

}  // namespace
}  // namespace hayate::bench
