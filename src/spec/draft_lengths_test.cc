#include "spec/draft_lengths.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"

namespace hayate::spec {
namespace {

using Survival = std::vector<std::vector<float>>;

std::vector<int32_t> Choose(const StepCost& cost, const DraftLengths::Step& step,
                            const Survival& survival) {
  std::vector<std::span<const float>> rows(survival.begin(), survival.end());
  std::vector<int32_t> lengths(rows.size());
  DraftLengths chooser;
  int32_t sum = 0;
  const int32_t total = chooser.Choose(cost, step, rows, lengths);
  for (const int32_t length : lengths) sum += length;
  EXPECT_EQ(total, sum);
  return lengths;
}

TEST(StepCost, IsAStraightLineBetweenAndBeyondItsPoints) {
  const StepCost cost({{1, 10.0}, {3, 14.0}, {4, 13.0}, {6, 20.0}});
  EXPECT_DOUBLE_EQ(cost.Ns(0), 10.0);
  EXPECT_DOUBLE_EQ(cost.Ns(2), 12.0);
  EXPECT_DOUBLE_EQ(cost.Ns(4), 14.0);  // a larger step is never quicker
  EXPECT_DOUBLE_EQ(cost.Ns(5), 17.0);
  EXPECT_DOUBLE_EQ(cost.Ns(8), 26.0);
  EXPECT_DOUBLE_EQ(StepCost({{1, 5.0}}).Ns(100), 5.0);
}

TEST(DraftLengths, AFreeDraftIsAlwaysVerifiedAndAHopelessOneNever) {
  const Survival survival = {{0.1f, 0.01f}, {0.9f}};
  EXPECT_EQ(Choose(StepCost({{1, 10.0}}), {2, 2, 100}, survival), (std::vector<int32_t>{2, 1}));
  const StepCost linear({{1, 10.0}, {2, 20.0}});
  EXPECT_EQ(Choose(linear, {2, 2, 100}, survival), (std::vector<int32_t>{0, 0}));
}

TEST(DraftLengths, LooksBeyondAStepOfTheCost) {
  // The second token costs half a step more, the next six nothing.
  const StepCost cost({{1, 10.0}, {2, 15.0}, {8, 15.0}});
  EXPECT_EQ(Choose(cost, {1, 1, 100}, {{0.4f, 0.35f, 0.3f, 0.3f}}), (std::vector<int32_t>{4}));
  EXPECT_EQ(Choose(cost, {1, 1, 100}, {{0.4f}}), (std::vector<int32_t>{0}));
}

TEST(DraftLengths, KeepsToTheStepsLimitAndTakesTheLikeliest) {
  const Survival survival = {{0.5f, 0.4f, 0.3f}, {0.9f, 0.8f}, {0.35f}};
  EXPECT_EQ(Choose(StepCost({{1, 10.0}}), {3, 3, 4}, survival), (std::vector<int32_t>{2, 2, 0}));
}

// Tokens a second of a step that verifies the given lengths.
double RateOf(const StepCost& cost, const Survival& survival, const std::vector<int32_t>& lengths) {
  double tokens = static_cast<double>(survival.size());
  auto drafts = 0;
  for (size_t r = 0; r < survival.size(); ++r) {
    for (int32_t i = 0; i < lengths[r]; ++i) tokens += survival[r][static_cast<size_t>(i)];
    drafts += lengths[r];
  }
  return tokens / cost.Ns(static_cast<int32_t>(survival.size()) + drafts);
}

// A device that reads its weights in any case and computes so many tokens meanwhile.
StepCost Roofline(double read_ns, double token_ns) {
  std::vector<StepCost::Point> points;
  for (int32_t tokens = 1; tokens <= 2048; tokens *= 2) {
    points.push_back({tokens, std::hypot(read_ns, token_ns * tokens)});
  }
  return StepCost(points);
}

TEST(DraftLengths, AreNeverBeatenByAFixedLengthFromBatch1To256) {
  Rng rng(7);
  const StepCost cost = Roofline(5e6, 4e4);
  for (int32_t batch = 1; batch <= 256; batch *= 2) {
    double chosen_tokens = 0, chosen_ns = 0;
    std::vector<double> fixed_tokens(6), fixed_ns(6);
    for (int step = 0; step < 50; ++step) {
      Survival survival;
      for (int32_t r = 0; r < batch; ++r) {
        const float quality = 0.2f + 0.75f * rng.NextFloat();
        auto& row = survival.emplace_back();
        float chance = 1.0f;
        for (int i = 0; i < 5; ++i) row.push_back(chance *= quality);
      }
      const auto lengths = Choose(cost, {batch, batch, 5 * batch}, survival);
      const auto add = [&](const std::vector<int32_t>& chosen, double& tokens, double& ns) {
        int32_t drafts = 0;
        for (const int32_t length : chosen) drafts += length;
        const double step_ns = cost.Ns(batch + drafts);
        tokens += RateOf(cost, survival, chosen) * step_ns;
        ns += step_ns;
      };
      add(lengths, chosen_tokens, chosen_ns);
      for (int32_t fixed = 0; fixed <= 5; ++fixed) {
        add(std::vector<int32_t>(static_cast<size_t>(batch), fixed),
            fixed_tokens[static_cast<size_t>(fixed)], fixed_ns[static_cast<size_t>(fixed)]);
      }
    }
    for (size_t fixed = 0; fixed <= 5; ++fixed) {
      EXPECT_GT(chosen_tokens / chosen_ns, 0.98 * fixed_tokens[fixed] / fixed_ns[fixed])
          << "batch " << batch << ", fixed " << fixed;
    }
  }
}

}  // namespace
}  // namespace hayate::spec
