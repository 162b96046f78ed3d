// Drafters of tiny checkpoints against expected guesses (models/testing/draft_golden.h).

#include "models/testing/draft_golden.h"

#include <cstring>

#include "models/testing/edited_checkpoint.h"
#include "weights/testing/temp_directory.h"

namespace hayate::models {
namespace {

using testing::DraftRunner;
using testing::EditedCheckpoint;
using testing::kExactTolerance;
using testing::kGolden;
using testing::WorstDifference;
using testing::WorstOf;

class DraftGolden : public testing::DraftGoldenTest {};

TEST_P(DraftGolden, GuessesAreTheExpectedOnesOnAnyNumberOfRanks) {
  for (const int num_ranks : {1, 2, 3}) {
    const auto runner = Runner({.num_ranks = num_ranks});
    EXPECT_LT(WorstDifference(runner->Forward({{0, ids_}}), logits_), kExactTolerance);
    for (size_t point = 0; point < positions_.size(); ++point) {
      const int32_t p = positions_[point];
      runner->Forward({{1, Tokens(0, p + 1)}});
      runner->Advance({{p + 1, ids_[static_cast<size_t>(p) + 1]}});
      for (int32_t i = 0; i < num_guesses(); ++i) {
        const auto guess = runner->Next(i, {Before(point, i)});
        // A block's guess i has gone through it i + 1 times.
        const float tolerance = kExactTolerance * static_cast<float>(i + 1);
        EXPECT_LT(WorstOf(guess.logits, Expected(point, i)), tolerance)
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
TEST_P(DraftGolden, RefusedTokensAndOldGuessesLeaveNoTrace) {
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

TEST_P(DraftGolden, ARowsGuessesDoNotDependOnItsBatch) {
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

TEST_P(DraftGolden, AStepThatWantsNoGuessesOnlyFillsTheCache) {
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

TEST_P(DraftGolden, FeaturesChangeNoLogits) {
  const auto runner = Runner({});
  const std::vector<float> with = runner->Forward({{0, ids_}});
  const auto plain = DraftRunner::Create(checkpoint_, {}).value();
  EXPECT_EQ(plain->Forward({{0, ids_}}), with);
}

TEST_P(DraftGolden, ADrafterThatIsNotThereIsRefused) {
  const bool dspark = GetParam().kind == DraftKind::kDspark;
  const auto status =
      DraftRunner::Create(
          checkpoint_, {.draft = dspark ? DraftKind::kNextN : DraftKind::kDspark, .max_drafts = 1})
          .status();
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported) << status.ToString();
}

TEST(DraftLoading, CheckpointsWithoutDraftBlocksAreRefused) {
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

// Loads the head of eagle3/llama with something changed.
class Eagle3Loading : public ::testing::Test {
 protected:
  Status Load(const std::string& target = "eagle3/llama/target") const {
    const auto checkpoint = weights::Checkpoint::Open(kGolden / target).value();
    const auto head = edited_.Open();
    return DraftRunner::Create(
               checkpoint,
               {.draft = DraftKind::kEagle3, .draft_checkpoint = &head, .max_drafts = 2})
        .status();
  }
  void ExpectRefused(ErrorCode code, const std::string& mentions) const {
    const Status status = Load();
    EXPECT_EQ(status.code(), code) << status.ToString();
    EXPECT_NE(status.ToString().find(mentions), std::string::npos) << status.ToString();
  }

  weights::TempDirectory directory_;
  EditedCheckpoint edited_{kGolden / "eagle3/llama/head", directory_.path() / "head"};
};

TEST_F(Eagle3Loading, TheHeadAsItIsIsTaken) { EXPECT_TRUE(Load().ok()) << Load().ToString(); }

TEST_F(Eagle3Loading, FormsWithoutAnImplementationAreRefusedByTheirField) {
  edited_.config["norm_before_fc"] = true;
  ExpectRefused(ErrorCode::kUnsupported, "norm_before_fc");
  edited_.config.erase("norm_before_fc");
  edited_.config["eagle_config"]["use_aux_hidden_state"] = false;
  ExpectRefused(ErrorCode::kUnsupported, "use_aux_hidden_state");
  edited_.config["eagle_config"]["use_aux_hidden_state"] = true;
  edited_.config["num_hidden_layers"] = 2;
  ExpectRefused(ErrorCode::kUnsupported, "num_hidden_layers");
}

TEST_F(Eagle3Loading, LayersThatTheTargetHasNotAreRefused) {
  auto& layers = edited_.config["eagle_config"]["eagle_aux_hidden_state_layer_ids"];
  // What the last layer of four makes enters no other.
  layers = {0, 1, 3};
  ExpectRefused(ErrorCode::kDataLoss, "layer 4");
  layers = {-2, 1, 2};
  ExpectRefused(ErrorCode::kDataLoss, "layer -1");
  layers = {0, 1};
  ExpectRefused(ErrorCode::kDataLoss, "fc.weight");
  layers = nlohmann::json::array();
  ExpectRefused(ErrorCode::kDataLoss, "eagle_aux_hidden_state_layer_ids");
  // Without the field: 2, 2 and 1 of four.
  edited_.config.erase("eagle_config");
  EXPECT_TRUE(Load().ok()) << Load().ToString();
}

TEST_F(Eagle3Loading, AMapOfTokensThatLeavesTheVocabularyIsRefused) {
  for (const int64_t wrong : {int64_t{-1}, int64_t{320}, int64_t{1} << 62, -(int64_t{1} << 62)}) {
    EditedCheckpoint edited(kGolden / "eagle3/llama/head", directory_.path() / "head");
    edited.Edit("d2t",
                [wrong](std::byte* data, size_t) { std::memcpy(data, &wrong, sizeof(wrong)); });
    edited_ = edited;
    ExpectRefused(ErrorCode::kDataLoss, "d2t");
  }
  edited_.Edit("d2t", [](std::byte* data, size_t) {
    // Token 0 and 1 are both the first of the target.
    const int64_t twice[] = {0, -1};
    std::memcpy(data, twice, sizeof(twice));
  });
  ExpectRefused(ErrorCode::kDataLoss, "twice");
}

TEST_F(Eagle3Loading, AnotherVocabularyOrFamilyIsRefused) {
  EXPECT_EQ(Load("dense/qwen2_window_16").code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(Load("deepseek_v3/deepseek_v3").code(), ErrorCode::kUnsupported);
}

INSTANTIATE_TEST_SUITE_P(Golden, DraftGolden, ::testing::ValuesIn(testing::Drafters()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace hayate::models
