#include "bench/sample_stats.h"

#include <gtest/gtest.h>

namespace hayate::bench {
namespace {

TEST(SampleStats, PercentilesInterpolateAsNumpyDoes) {
  const double samples[] = {10, 20, 30, 40};
  EXPECT_DOUBLE_EQ(Percentile(samples, 0), 10);
  EXPECT_DOUBLE_EQ(Percentile(samples, 50), 25);
  EXPECT_DOUBLE_EQ(Percentile(samples, 90), 37);
  EXPECT_DOUBLE_EQ(Percentile(samples, 99), 39.7);
  EXPECT_DOUBLE_EQ(Percentile(samples, 100), 40);
  EXPECT_DOUBLE_EQ(Percentile(std::span(samples, 1), 99), 10);
}

TEST(SampleStats, SummarizesUnsortedSamples) {
  const SampleStats stats = Summarize({9, 2, 4, 4, 5, 5, 7, 4});
  EXPECT_EQ(stats.count, 8u);
  EXPECT_DOUBLE_EQ(stats.mean, 5);
  EXPECT_DOUBLE_EQ(stats.std, 2);
  EXPECT_DOUBLE_EQ(stats.median, 4.5);
  EXPECT_DOUBLE_EQ(stats.max, 9);
}

TEST(SampleStats, NoSamplesGiveZeros) {
  const SampleStats stats = Summarize({});
  EXPECT_EQ(stats.count, 0u);
  EXPECT_EQ(stats.mean, 0.0);
  EXPECT_EQ(stats.p99, 0.0);
}

}  // namespace
}  // namespace hayate::bench
