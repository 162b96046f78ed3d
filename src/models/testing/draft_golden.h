#pragma once
// Drafters of tiny checkpoints and the guesses that are expected of them: DeepSeek's draft blocks
// (tests/golden/deepseek_drafts) and EAGLE-3 heads (tests/golden/eagle3), by the published formulas
// in float64.

#include <gtest/gtest.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "models/testing/draft_runner.h"
#include "models/testing/golden_case.h"

namespace hayate::models::testing {

inline const std::filesystem::path kGolden = "tests/golden";

struct Drafter {
  std::string name;
  DraftKind kind;
  std::string target;
  std::string head = "";  // where it has a checkpoint of its own
  std::string expected() const { return head.empty() ? target : head; }
};
inline void PrintTo(const Drafter& drafter, std::ostream* out) { *out << drafter.name; }

// fp32 against float64 (V3: against another fp32), as for the trunks (deepseek_v4_test.cc).
inline constexpr float kExactTolerance = 1e-4f;

// Of tokens that the drafter knows; the others' logits must be −∞.
inline float WorstOf(std::vector<float> got, std::vector<float> expected) {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    if (expected[i] == kNever && got[i] == kNever) got[i] = expected[i] = 0.0f;
  }
  return WorstDifference(got, expected);
}

class DraftGoldenTest : public ::testing::TestWithParam<Drafter> {
 protected:
  DraftGoldenTest() : checkpoint_(weights::Checkpoint::Open(kGolden / GetParam().target).value()) {
    if (!GetParam().head.empty()) {
      head_.emplace(weights::Checkpoint::Open(kGolden / GetParam().head).value());
    }
    const auto file =
        weights::Checkpoint::Open(kGolden / GetParam().expected() / "expected.safetensors").value();
    ids_ = GoldenValues<int32_t>(file, "input_ids");
    positions_ = GoldenValues<int32_t>(file, "positions");
    guesses_ = GoldenValues<int32_t>(file, "guesses");
    logits_ = GoldenValues<float>(file, "logits");
    draft_logits_ = GoldenValues<float>(file, "draft_logits");
    if (file.Has("confidences")) confidences_ = GoldenValues<float>(file, "confidences");
  }

  std::unique_ptr<DraftRunner> Runner(DraftRunnerOptions options) {
    options.draft = GetParam().kind;
    options.draft_checkpoint = head_ ? &*head_ : nullptr;
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
  std::optional<weights::Checkpoint> head_;
  std::vector<int32_t> ids_, positions_, guesses_;
  std::vector<float> logits_, draft_logits_, confidences_;
};

// Every kind of drafter.
inline std::vector<Drafter> Drafters() {
  const std::string deepseek = "deepseek_drafts/";
  return {{"v3_mtp", DraftKind::kNextN, deepseek + "v3_mtp"},
          {"v4_mtp", DraftKind::kNextN, deepseek + "v4_mtp"},
          {"v4_dspark", DraftKind::kDspark, deepseek + "v4_dspark"},
          {"v4_pro_dspark", DraftKind::kDspark, deepseek + "v4_pro_dspark"},
          {"v41_dspark", DraftKind::kDspark, deepseek + "v41_dspark"},
          {"llama_eagle3", DraftKind::kEagle3, "eagle3/llama/target", "eagle3/llama/head"},
          {"qwen3_eagle3", DraftKind::kEagle3, "eagle3/qwen3/target", "eagle3/qwen3/head"}};
}

}  // namespace hayate::models::testing
