// The draft blocks of tiny DeepSeek checkpoints against expected guesses (tests/golden/
// deepseek_drafts: the published formulas in float64).

#include <gtest/gtest.h>

#include <filesystem>

#include "models/testing/draft_runner.h"
#include "models/testing/golden_case.h"

namespace hayate::models {
namespace {

using testing::DraftRunner;
using testing::DraftRunnerOptions;
using testing::GoldenValues;
using testing::WorstDifference;

const std::filesystem::path kGolden = "tests/golden/deepseek_drafts";

// fp32 against float64 (V3: against another fp32), as for the trunks (deepseek_v4_test.cc).
constexpr float kExactTolerance = 1e-4f;

class DeepseekDrafts : public ::testing::TestWithParam<std::string> {
 protected:
  DeepseekDrafts() : checkpoint_(weights::Checkpoint::Open(kGolden / GetParam()).value()) {
    const auto file =
        weights::Checkpoint::Open(kGolden / GetParam() / "expected.safetensors").value();
    ids_ = GoldenValues<int32_t>(file, "input_ids");
    positions_ = GoldenValues<int32_t>(file, "positions");
    guesses_ = GoldenValues<int32_t>(file, "guesses");
    logits_ = GoldenValues<float>(file, "logits");
    draft_logits_ = GoldenValues<float>(file, "draft_logits");
    if (file.Has("confidences")) confidences_ = GoldenValues<float>(file, "confidences");
  }

  std::unique_ptr<DraftRunner> Runner(DraftRunnerOptions options) {
    const bool mtp = GetParam().ends_with("mtp");
    options.draft = mtp ? DraftKind::kNextN : DraftKind::kDspark;
    options.max_drafts = num_guesses();
    auto runner = DraftRunner::Create(checkpoint_, options);
    EXPECT_TRUE(runner.ok()) << runner.status().ToString();
    return std::move(runner).value();
  }
  int32_t num_guesses() const {
    return static_cast<int32_t>(guesses_.size() / positions_.size());  // K
  }
  size_t vocab() const { return logits_.size() / ids_.size(); }
  std::vector<int32_t> Tokens(int32_t begin, int32_t end) const {
    return {ids_.begin() + begin, ids_.begin() + end};
  }
  std::vector<float> Expected(size_t point, int32_t i) const {
    const size_t row = point * static_cast<size_t>(num_guesses()) + static_cast<size_t>(i);
    const auto begin = draft_logits_.begin() + static_cast<long>(row * vocab());
    return {begin, begin + static_cast<long>(vocab())};
  }
  // The token that guess i of a point follows: the anchor, or the guess before.
  int32_t Before(size_t point, int32_t i) const {
    if (i == 0) return ids_[static_cast<size_t>(positions_[point]) + 1];
    return guesses_[point * static_cast<size_t>(num_guesses()) + static_cast<size_t>(i) - 1];
  }
  // All guesses' logits and confidences of the point, after an Advance that reached it.
  std::vector<float> Guesses(DraftRunner& runner, size_t point) const {
    std::vector<float> all;
    for (int32_t i = 0; i < num_guesses(); ++i) {
      const auto guess = runner.Next(i, {Before(point, i)});
      all.insert(all.end(), guess.logits.begin(), guess.logits.end());
      if (runner.drafter().has_confidence()) all.push_back(guess.confidences[0]);
    }
    return all;
  }
  // Of a fresh sequence that is computed up to the point in one step.
  std::vector<float> FreshGuesses(DraftRunner& runner, size_t point) const {
    const int32_t p = positions_[point];
    runner.Forward({{7, Tokens(0, p + 1)}});
    runner.Advance({{p + 1, ids_[static_cast<size_t>(p) + 1]}});
    std::vector<float> guesses = Guesses(runner, point);
    runner.Drop(7);
    return guesses;
  }

  weights::Checkpoint checkpoint_;
  std::vector<int32_t> ids_, positions_, guesses_;
  std::vector<float> logits_, draft_logits_, confidences_;
};

TEST_P(DeepseekDrafts, GuessesAreTheExpectedOnesOnAnyNumberOfRanks) {
  for (const int num_ranks : {1, 2, 3}) {
    const auto runner = Runner({.num_ranks = num_ranks});
    EXPECT_LT(WorstDifference(runner->Forward({{0, ids_}}), logits_), kExactTolerance);
    for (size_t point = 0; point < positions_.size(); ++point) {
      const int32_t p = positions_[point];
      runner->Forward({{1, Tokens(0, p + 1)}});
      runner->Advance({{p + 1, ids_[static_cast<size_t>(p) + 1]}});
      for (int32_t i = 0; i < num_guesses(); ++i) {
        const auto guess = runner->Next(i, {Before(point, i)});
        // An MTP block's guess i has gone through it i + 1 times.
        const float tolerance = kExactTolerance * static_cast<float>(i + 1);
        EXPECT_LT(WorstDifference(guess.logits, Expected(point, i)), tolerance)
            << "guess " << i << " after " << p << ", " << num_ranks << " ranks";
        if (confidences_.empty()) continue;
        const size_t at = point * static_cast<size_t>(num_guesses()) + static_cast<size_t>(i);
        EXPECT_NEAR(guess.confidences[0], confidences_[at], kExactTolerance);
      }
      runner->Drop(1);
    }
  }
}

// The drafter follows a sequence through steps of any lengths, whose last tokens are refused, with
// guesses in between that nobody takes: its guesses are those of a run that computed it at once.
TEST_P(DeepseekDrafts, RefusedTokensAndOldGuessesLeaveNoTrace) {
  for (const auto precision : {ops::MatmulPrecision::kExact, ops::MatmulPrecision::kFast}) {
    for (int32_t refused = 0; refused <= num_guesses(); ++refused) {
      const auto runner = Runner({.precision = precision, .page_tokens = 8});
      int32_t begin = 0;
      for (size_t point = 0; point < positions_.size(); ++point) {
        const int32_t p = positions_[point];
        while (begin <= p) {
          const int32_t end = std::min(p + 1, begin + 1 + (begin + refused) % 7);
          std::vector<int32_t> tokens = Tokens(begin, end);
          for (int32_t i = 0; i < refused; ++i) tokens.push_back(40 + 11 * i + begin);
          runner->Forward({{0, tokens}});
          runner->TakeBack(0, refused);
          runner->Advance({{end - begin, ids_[static_cast<size_t>(end)]}});
          begin = end;
          if (begin <= p) {
            for (int32_t i = 0; i < num_guesses(); ++i) runner->Next(i, {17 * i + begin});
          }
        }
        const std::vector<float> guesses = Guesses(*runner, point);
        ASSERT_EQ(guesses, FreshGuesses(*runner, point)) << refused << " refused, after " << p;
      }
    }
  }
}

TEST_P(DeepseekDrafts, ARowsGuessesDoNotDependOnItsBatch) {
  const auto runner = Runner({.num_ranks = 2});
  const size_t last = positions_.size() - 1;
  const int32_t p = positions_[last];
  const std::vector<float> alone = FreshGuesses(*runner, last);
  runner->Forward({{1, Tokens(5, 9)}, {2, Tokens(0, p + 1)}, {3, Tokens(11, 40)}});
  // The first row wants no guesses; the last one had tokens refused.
  runner->Advance({{4, ids_[9], false}, {p + 1, ids_[static_cast<size_t>(p) + 1]}, {20, ids_[31]}});
  std::vector<float> beside;
  for (int32_t i = 0; i < num_guesses(); ++i) {
    const auto guess = runner->Next(i, {Before(last, i), 50 + i});
    beside.insert(beside.end(), guess.logits.begin(),
                  guess.logits.begin() + static_cast<long>(vocab()));
    if (runner->drafter().has_confidence()) beside.push_back(guess.confidences[0]);
  }
  EXPECT_EQ(beside, alone);
}

TEST_P(DeepseekDrafts, AStepThatWantsNoGuessesOnlyFillsTheCache) {
  const auto runner = Runner({});
  const size_t last = positions_.size() - 1;
  const int32_t p = positions_[last];
  runner->Forward({{0, Tokens(0, p)}});
  runner->Advance({{p, ids_[static_cast<size_t>(p)], false}});
  runner->Forward({{0, Tokens(p, p + 1)}});
  runner->Advance({{1, ids_[static_cast<size_t>(p) + 1]}});
  const std::vector<float> guesses = Guesses(*runner, last);
  EXPECT_EQ(guesses, FreshGuesses(*runner, last));
}

TEST_P(DeepseekDrafts, FeaturesChangeNoLogits) {
  const auto runner = Runner({});
  const std::vector<float> with = runner->Forward({{0, ids_}});
  const auto plain = DraftRunner::Create(checkpoint_, {}).value();
  EXPECT_EQ(plain->Forward({{0, ids_}}), with);
}

TEST_P(DeepseekDrafts, ADrafterThatIsNotThereIsRefused) {
  const bool mtp = GetParam().ends_with("mtp");
  const auto status =
      DraftRunner::Create(checkpoint_,
                          {.draft = mtp ? DraftKind::kDspark : DraftKind::kNextN, .max_drafts = 1})
          .status();
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported) << status.ToString();
}

TEST(DeepseekDraftLoading, CheckpointsWithoutDraftBlocksAreRefused) {
  for (const char* name : {"deepseek_v3/deepseek_v3_plain", "deepseek_v4/ratio_32",
                           "deepseek_v41/tiny", "dense/llama"}) {
    const auto checkpoint =
        weights::Checkpoint::Open(std::filesystem::path("tests/golden") / name).value();
    for (const DraftKind kind : {DraftKind::kNextN, DraftKind::kDspark}) {
      const auto status =
          DraftRunner::Create(checkpoint, {.draft = kind, .max_drafts = 1}).status();
      EXPECT_EQ(status.code(), ErrorCode::kUnsupported) << name << ": " << status.ToString();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, DeepseekDrafts,
                         ::testing::Values("v3_mtp", "v4_mtp", "v4_dspark", "v4_pro_dspark",
                                           "v41_dspark"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace hayate::models
