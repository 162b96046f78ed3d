// Tiny mixtures under every layout of ranks: tensor parallel, experts that rows travel to, DP
// attention, redundant experts, all against one rank.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include "base/align.h"
#include "models/testing/golden_case.h"
#include "models/testing/model_runner.h"

namespace hayate::models {
namespace {

using testing::ModelRunner;
using testing::RunnerOptions;
using testing::RunnerRow;
using testing::WantedLogits;
using testing::WorstDifference;

const std::filesystem::path kGolden = "tests/golden";

// Sums over ranks are taken in another order than on one rank; logits are of order 1.
constexpr float kSumTolerance = 1e-3f;

class RankLayouts : public ::testing::TestWithParam<std::string> {
 protected:
  RankLayouts() : checkpoint_(weights::Checkpoint::Open(kGolden / GetParam()).value()) {
    const auto file =
        weights::Checkpoint::Open(kGolden / GetParam() / "expected.safetensors").value();
    input_ids_ = testing::GoldenValues<int32_t>(file, "input_ids");
  }

  std::unique_ptr<ModelRunner> Runner(RunnerOptions options) const {
    options.max_tokens = 128;
    options.num_pages = 96;
    auto runner = ModelRunner::Create(checkpoint_, options);
    EXPECT_TRUE(runner.ok()) << runner.status().ToString();
    return std::move(runner).value();
  }

  std::vector<int32_t> Tokens(size_t begin, size_t count) const {
    std::vector<int32_t> tokens;
    for (size_t i = begin; i < begin + count; ++i) {
      tokens.push_back(input_ids_[i % input_ids_.size()]);
    }
    return tokens;
  }

  // Steps of a served batch: chunks with and without logits, decode rows, sequences that end, steps
  // in which whole ranks have nothing to do.
  std::vector<std::vector<RunnerRow>> Steps() const {
    const auto row = [&](int sequence, size_t begin, size_t count,
                         WantedLogits logits = WantedLogits::kLast) {
      return RunnerRow{sequence, Tokens(begin + static_cast<size_t>(sequence), count), logits};
    };
    return {{row(0, 0, 7, WantedLogits::kAll)},
            {row(0, 7, 1), row(1, 0, 12, WantedLogits::kNone)},
            {row(1, 12, 5), row(0, 8, 1), row(2, 0, 3)},
            {row(3, 0, 9, WantedLogits::kNone)},
            {row(3, 9, 1), row(2, 3, 1), row(1, 17, 1), row(0, 9, 1), row(6, 0, 20)},
            {row(2, 4, 6, WantedLogits::kAll), row(5, 0, 2)},
            {row(7, 0, 1), row(5, 2, 1)}};
  }

  // As many redundant experts as make them divide over the ranks, and `more` a rank.
  int Redundant(int num_ranks, int more = 0) const {
    const int32_t experts = ReadExpertShape(checkpoint_).value().num_experts;
    return AlignUp(experts, num_ranks) - experts + more * num_ranks;
  }

  weights::Checkpoint checkpoint_;
  std::vector<int32_t> input_ids_;
};

// Every row is computed whole by one attention rank, and a row's experts are summed in one order:
// dp ranks give one rank's bits, wherever the experts lie.
TEST_P(RankLayouts, DpAttentionGivesTheBitsOfOneRank) {
  const auto one = Runner({});
  std::vector<std::vector<float>> expected;
  for (const auto& step : Steps()) expected.push_back(one->Step(step));
  const RunnerOptions layouts[] = {
      {.num_ranks = 2, .dp_size = 2, .num_redundant_experts = Redundant(2)},
      {.num_ranks = 4, .dp_size = 4, .num_redundant_experts = Redundant(4)},
      {.num_ranks = 4, .dp_size = 4, .num_redundant_experts = Redundant(4, 1)},
      {.num_ranks = 2, .dp_size = 2, .num_redundant_experts = Redundant(2, 2)}};
  for (const RunnerOptions& layout : layouts) {
    const auto runner = Runner(layout);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(runner->Step(Steps()[i]), expected[i])
          << layout.num_ranks << " ranks, " << layout.num_redundant_experts << " redundant, step "
          << i;
    }
  }
}

TEST_P(RankLayouts, RanksThatSplitHeadsGiveTheSameTokens) {
  const auto one = Runner({});
  std::vector<std::vector<float>> expected;
  for (const auto& step : Steps()) expected.push_back(one->Step(step));
  const RunnerOptions layouts[] = {
      {.num_ranks = 2},  // experts by range, summed
      {.num_ranks = 4},
      {.num_ranks = 2, .ep_size = 2, .num_redundant_experts = Redundant(2)},
      {.num_ranks = 4, .dp_size = 2, .num_redundant_experts = Redundant(4)},
      {.num_ranks = 4, .ep_size = 4, .num_redundant_experts = Redundant(4, 1)}};
  for (const RunnerOptions& layout : layouts) {
    const auto runner = Runner(layout);
    for (size_t i = 0; i < expected.size(); ++i) {
      const std::vector<float> logits = runner->Step(Steps()[i]);
      EXPECT_LT(WorstDifference(logits, expected[i]), kSumTolerance)
          << layout.num_ranks << " ranks, step " << i;
      const auto vocab = static_cast<ptrdiff_t>(one->vocab_size());
      for (auto at = logits.begin(); at != logits.end(); at += vocab) {
        const auto other = expected[i].begin() + (at - logits.begin());
        EXPECT_EQ(std::max_element(at, at + vocab) - at,
                  std::max_element(other, other + vocab) - other);
      }
    }
  }
}

TEST_P(RankLayouts, EveryRankExchangesEquallyOftenAndCountsItsRows) {
  const auto runner =
      Runner({.num_ranks = 4, .dp_size = 4, .num_redundant_experts = Redundant(4, 1)});
  for (const auto& step : Steps()) runner->Step(step);
  const int64_t exchanges = runner->exchange(0).counters().exchanges;
  EXPECT_GT(exchanges, 0);
  int64_t rows = 0, counted = 0;
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(runner->exchange(rank).counters().exchanges, exchanges);
    rows += runner->exchange(rank).counters().rows;
    const auto& counts = runner->expert_counts(rank);
    counted += std::accumulate(counts.begin(), counts.end(), int64_t{0});
  }
  EXPECT_EQ(counted, rows * ReadExpertShape(checkpoint_).value().top_k);
}

TEST_P(RankLayouts, ExpertsThatDoNotDivideAreRefusedByName) {
  const auto refused = ModelRunner::Create(
      checkpoint_, {.num_ranks = 2, .dp_size = 2, .num_redundant_experts = Redundant(2) + 1});
  EXPECT_EQ(refused.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(refused.status().message().find("--ep-num-redundant-experts"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Families, RankLayouts,
                         ::testing::Values("deepseek_v4/flash", "deepseek_v4/pro",
                                           "deepseek_v41/tiny", "deepseek_v3/deepseek_v3",
                                           "qwen_moe/qwen3_moe", "qwen_moe/qwen2_moe",
                                           "gpt_oss/gpt_oss"),
                         [](const ::testing::TestParamInfo<std::string>& test) {
                           return test.param.substr(test.param.find('/') + 1);
                         });

}  // namespace
}  // namespace hayate::models
