#include "ops/sampling/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/rng.h"
#include "ops/sampling/detail/mass.h"
#include "ops/sampling/detail/sampler.h"

namespace hayate::ops {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

class SamplingTest : public ::testing::Test {
 protected:
  Workspace MakeWorkspace(int32_t vocab_size) {
    return Workspace(
        Buffer::Allocate(*device_, static_cast<size_t>(SampleWorkspaceBytes(vocab_size))).value());
  }
  SamplingResult SampleOne(SamplingRow row, std::vector<float> logits) {
    row.logits = logits.data();
    Workspace workspace = MakeWorkspace(static_cast<int32_t>(logits.size()));
    SamplingResult result;
    Sample({}, workspace, static_cast<int32_t>(logits.size()), {&row, 1}, {&result, 1});
    EXPECT_EQ(workspace.mark(), 0u);
    return result;
  }

  std::unique_ptr<Device> device_ = MakeCpuDevice(0);
};

// Rows of every shape that serving makes: smooth, with many ties, with forbidden ids, peaked.
std::vector<float> RandomLogits(Rng& rng, int32_t vocab_size) {
  std::vector<float> logits(static_cast<size_t>(vocab_size));
  const float width = static_cast<float>(rng.Between(1, 12));
  const bool ties = rng.Below(3) == 0;
  for (float& x : logits) {
    x = width * rng.NextNormal();
    if (ties) x = std::round(x);
    if (rng.Below(20) == 0) x = -kInf;
  }
  if (rng.Below(4) == 0) logits[rng.Below(static_cast<uint32_t>(vocab_size))] = 60.0f;
  logits[rng.Below(static_cast<uint32_t>(vocab_size))] = -0.0f;
  return logits;
}

struct RandomRow {
  SamplingRow row;
  std::vector<int32_t> counts, banned;
  std::vector<uint32_t> bitmask;
  std::vector<std::pair<int32_t, float>> bias;
};

RandomRow MakeRow(Rng& rng, int32_t vocab_size) {
  const uint32_t v = static_cast<uint32_t>(vocab_size);
  RandomRow r;
  SamplingRow& row = r.row;
  const float temperatures[] = {0.0f, 0.01f, 0.7f, 1.0f, 1.7f, 100.0f};
  const float top_ps[] = {1.0f, 0.999f, 0.9f, 0.5f, 1e-6f};
  const float min_ps[] = {0.0f, 0.0f, 0.05f, 0.9f, 1.0f};
  row.temperature = temperatures[rng.Below(6)];
  row.top_k = rng.Below(2) == 0 ? 0 : rng.Between(1, rng.Below(2) == 0 ? 50 : vocab_size + 5);
  row.top_p = top_ps[rng.Below(5)];
  row.min_p = min_ps[rng.Below(5)];
  row.seed = rng.NextU64();
  row.position = rng.Below(1000);
  row.num_logprobs = rng.Between(-1, 6);
  if (rng.Below(3) == 0) {
    r.counts.resize(v);
    for (int32_t& count : r.counts) count = rng.Below(4) == 0 ? rng.Between(1, 3) : 0;
    row.repetition_penalty = 1.0f + 0.5f * rng.NextFloat();
    row.frequency_penalty = rng.NextFloat() - 0.5f;
    row.presence_penalty = rng.NextFloat() - 0.5f;
  }
  if (rng.Below(4) == 0) r.banned = {static_cast<int32_t>(rng.Below(v)), 0};
  if (rng.Below(4) == 0) {
    r.bias = {{static_cast<int32_t>(rng.Below(v)), 5.0f}, {vocab_size - 1, -100.0f}};
  }
  if (rng.Below(4) == 0) {
    r.bitmask.resize((v + 31) / 32);
    for (uint32_t& word : r.bitmask)
      word = rng.Below(3) == 0 ? 0xFFFFFFFFu : rng.NextU32() & rng.NextU32();
  }
  return r;
}

void ExpectEqual(const SamplingResult& got, const SamplingResult& expected) {
  EXPECT_EQ(got.token, expected.token);
  EXPECT_EQ(got.bad_logits, expected.bad_logits);
  EXPECT_EQ(got.logprob, expected.logprob);
  EXPECT_EQ(got.rank, expected.rank);
  EXPECT_EQ(got.top, expected.top);
}

TEST_F(SamplingTest, EveryKernelDrawsWhatTheReferenceDraws) {
  for (const sampling::ScanKernels& kernels : sampling::AllScanKernels()) {
    if (!kernels.runs_on(DetectCpuFeatures())) continue;
    Rng rng(11);
    for (int round = 0; round < 3000; ++round) {
      const int32_t vocab_size = rng.Between(1, rng.Below(8) == 0 ? 5000 : 200);
      std::vector<float> logits = RandomLogits(rng, vocab_size);
      RandomRow r = MakeRow(rng, vocab_size);
      r.row.logits = logits.data();
      if (!r.counts.empty()) r.row.output_counts = r.counts.data();
      if (!r.bitmask.empty()) r.row.bitmask = r.bitmask.data();
      r.row.banned = r.banned;
      r.row.bias = r.bias;
      const SamplingResult expected = SampleReference(vocab_size, r.row);
      Workspace workspace = MakeWorkspace(vocab_size);
      ExpectEqual(sampling::Sampler(kernels, workspace).Sample(r.row, vocab_size), expected);
      if (HasFailure()) FAIL() << kernels.name << ", round " << round;
    }
  }
}

TEST_F(SamplingTest, FrequenciesOfDrawsFollowTheSoftmax) {
  const std::vector<float> logits = {0.0f, 1.0f, 2.0f, -1.0f, 3.0f};
  constexpr int kDraws = 20000;
  std::vector<int> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) {
    ++counts[static_cast<size_t>(
        SampleOne({.temperature = 2.0f, .seed = 5, .position = static_cast<uint64_t>(i)}, logits)
            .token)];
  }
  double total = 0;
  for (const float x : logits) total += std::exp(double{x} / 2);
  for (size_t i = 0; i < logits.size(); ++i) {
    const double p = std::exp(double{logits[i]} / 2) / total;
    // Five standard deviations of a binomial count.
    EXPECT_NEAR(counts[i], kDraws * p, 5 * std::sqrt(kDraws * p * (1 - p))) << i;
  }
}

TEST_F(SamplingTest, GreedyTakesTheLowestIdOfEqualLogits) {
  std::vector<float> logits(100, 1.0f);
  logits[40] = logits[70] = 2.0f;
  EXPECT_EQ(SampleOne({.temperature = 0.0f}, logits).token, 40);
  const int32_t banned[] = {40};
  EXPECT_EQ(SampleOne({.temperature = 0.0f, .banned = banned}, logits).token, 70);
}

TEST_F(SamplingTest, TopKOfOneIsGreedyAtAnyTemperature) {
  Rng rng(3);
  for (int i = 0; i < 50; ++i) {
    const std::vector<float> logits = RandomLogits(rng, 300);
    const int32_t greedy = SampleOne({.temperature = 0.0f}, logits).token;
    EXPECT_EQ(SampleOne({.temperature = 50.0f, .top_k = 1, .seed = rng.NextU64()}, logits).token,
              greedy);
    EXPECT_EQ(
        SampleOne({.temperature = 50.0f, .top_p = 1e-9f, .seed = rng.NextU64()}, logits).token,
        greedy);
    EXPECT_EQ(SampleOne({.temperature = 50.0f, .top_k = 1, .min_p = 1.0f, .seed = 1}, logits).token,
              greedy);
  }
}

TEST_F(SamplingTest, TheSameSeedAndPositionDrawTheSameTokenInAnyBatch) {
  Rng rng(9);
  const std::vector<float> logits = RandomLogits(rng, 1000);
  const SamplingRow row = {.seed = 77, .position = 12};
  const SamplingResult alone = SampleOne(row, logits);
  std::vector<std::vector<float>> copies(5, logits);
  std::vector<SamplingRow> rows(5, row);
  for (size_t i = 0; i < rows.size(); ++i) rows[i].logits = copies[i].data();
  rows[0].seed = 1, rows[1].temperature = 0.0f, rows[2].top_k = 3;
  std::vector<SamplingResult> results(5);
  Workspace workspace = MakeWorkspace(1000);
  Sample({}, workspace, 1000, rows, results);
  EXPECT_EQ(results[4].token, alone.token);
}

TEST_F(SamplingTest, RowsWithoutAUsableLogitAreReported) {
  EXPECT_TRUE(SampleOne({}, {0.0f, std::nanf(""), 1.0f}).bad_logits);
  EXPECT_TRUE(SampleOne({.temperature = 0.0f}, {0.0f, kInf}).bad_logits);
  EXPECT_TRUE(SampleOne({}, {-kInf, -kInf}).bad_logits);
  const uint32_t nothing = 0;
  EXPECT_TRUE(SampleOne({.bitmask = &nothing, .num_logprobs = 2}, {0.0f, 1.0f}).bad_logits);
  std::vector<float> wide(1000, 1.0f);
  wide[500] = std::nanf("");
  EXPECT_TRUE(SampleOne({.temperature = 0.0f}, wide).bad_logits);
  const int32_t counts[] = {0, 1, 0};
  for (const float temperature : {0.0f, 1.0f}) {
    const SamplingRow overflowing{
        .temperature = temperature, .repetition_penalty = 1e-38f, .output_counts = counts};
    EXPECT_TRUE(SampleOne(overflowing, {1.0f, 20.0f, 3.0f}).bad_logits);
  }
}

TEST_F(SamplingTest, LogprobsAreLogSoftmaxOfTheRawLogits) {
  const std::vector<float> logits = {1.0f, 3.0f, 2.0f, 3.0f};
  const int32_t banned[] = {1};
  const SamplingResult result =
      SampleOne({.temperature = 0.0f, .banned = banned, .num_logprobs = 3}, logits);
  EXPECT_EQ(result.token, 3);
  EXPECT_EQ(result.rank, 1);  // id 1 has the same logit and comes before
  const double lse = std::log(std::exp(1.0) + 2 * std::exp(3.0) + std::exp(2.0));
  EXPECT_NEAR(result.logprob, 3.0 - lse, 1e-6);
  ASSERT_EQ(result.top.size(), 3u);
  EXPECT_EQ(result.top[0].first, 1);
  EXPECT_EQ(result.top[1].first, 3);
  EXPECT_NEAR(result.top[2].second, 2.0 - lse, 1e-6);

  const SamplingResult scored = ScoreToken(logits, 2, 10);
  EXPECT_NEAR(scored.logprob, 2.0 - lse, 1e-6);
  EXPECT_EQ(scored.rank, 2);
  EXPECT_EQ(scored.top.size(), 4u);
  EXPECT_TRUE(ScoreToken(std::vector<float>{std::nanf("")}, 0, 0).bad_logits);
}

TEST(Mass, FollowsTheExponentialAndIsFullAtZero) {
  EXPECT_EQ(sampling::Mass(0.0f), sampling::kFullMass);
  EXPECT_EQ(sampling::Mass(-kInf), 0u);
  EXPECT_EQ(sampling::Mass(-30.0f), 0u);
  for (float x = -0.01f; x > -20.0f; x *= 1.3f) {
    const double expected = std::exp(double{x}) * 0x1p40;
    EXPECT_NEAR(static_cast<double>(sampling::Mass(x)), expected, expected * 4e-6 + 1);
  }
}

TEST(Mass, KeysOrderByLogitThenById) {
  using sampling::KeyOf;
  EXPECT_GT(KeyOf(1.0f, 5), KeyOf(0.5f, 1));
  EXPECT_GT(KeyOf(-1.0f, 5), KeyOf(-2.0f, 1));
  EXPECT_GT(KeyOf(0.0f, 1), KeyOf(-1.0f, 0));
  EXPECT_GT(KeyOf(-1.0f, 9), KeyOf(-kInf, 0));
  EXPECT_GT(KeyOf(-0.0f, 1), KeyOf(0.0f, 2));
  EXPECT_EQ(sampling::IdOf(KeyOf(3.25f, 150000)), 150000);
  EXPECT_EQ(sampling::LogitOf(KeyOf(-3.25f, 7)), -3.25f);
}

}  // namespace
}  // namespace hayate::ops
