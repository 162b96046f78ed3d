// Tokens that a step computed and that turned out wrong leave no trace: whatever was refused, the
// logits of what follows are those of a run that never saw it, to the bit.

#include <gtest/gtest.h>

#include <filesystem>

#include "base/rng.h"
#include "models/testing/draft_runner.h"
#include "models/testing/golden_case.h"

namespace hayate::models {
namespace {

using testing::DraftRunner;
using testing::DraftRunnerOptions;
using testing::DraftRunnerRow;

constexpr int32_t kDrafts = 5;

class Rollback : public ::testing::TestWithParam<std::string> {
 protected:
  Rollback()
      : checkpoint_(
            weights::Checkpoint::Open(std::filesystem::path("tests/golden") / GetParam()).value()),
        ids_(
            testing::ReadGoldenCase(std::filesystem::path("tests/golden") / GetParam()).input_ids) {
    // Longer than any window and block.
    const size_t given = ids_.size();
    while (ids_.size() < 160) ids_.push_back(ids_[(ids_.size() * 7 + 3) % given]);
    if (ids_.size() > 200) ids_.resize(200);
  }

  std::unique_ptr<DraftRunner> Runner(DraftRunnerOptions options) {
    options.max_drafts = kDrafts;
    auto runner = DraftRunner::Create(checkpoint_, options);
    EXPECT_TRUE(runner.ok()) << runner.status().ToString();
    vocab_ = (*runner)->vocab_size();
    return std::move(runner).value();
  }
  int32_t length() const { return static_cast<int32_t>(ids_.size()); }

  // Tokens [begin, end), of which those from `right` on are wrong.
  std::vector<int32_t> Mixed(int32_t begin, int32_t right, int32_t end, Rng& rng) const {
    std::vector<int32_t> tokens(ids_.begin() + begin, ids_.begin() + end);
    for (int32_t t = right; t < end; ++t) {
      auto& token = tokens[static_cast<size_t>(t - begin)];
      token = (token + 1 + static_cast<int32_t>(rng.Below(200))) % 256;
    }
    return tokens;
  }

  // Whether `count` rows of logits are those of positions begin … of the plain run.
  bool Equal(std::span<const float> rows, int32_t begin, int32_t count) const {
    const auto from = static_cast<size_t>(begin) * vocab_;
    return std::equal(rows.begin(), rows.begin() + static_cast<long>(count * vocab_),
                      plain_.begin() + static_cast<long>(from));
  }

  weights::Checkpoint checkpoint_;
  std::vector<int32_t> ids_;
  std::vector<float> plain_;  // [T, V]
  size_t vocab_ = 0;
};

TEST_P(Rollback, EveryAcceptCountAtEveryPlaceLeavesNoTrace) {
  for (const DType kv_dtype : {DType::kF32, DType::kBF16}) {
    // What is served: quick products over a BF16 cache.
    const auto precision =
        kv_dtype == DType::kF32 ? ops::MatmulPrecision::kExact : ops::MatmulPrecision::kFast;
    const auto runner = Runner({.precision = precision, .kv_dtype = kv_dtype, .page_tokens = 8});
    plain_ = runner->Forward({{0, ids_}});
    runner->Drop(0);
    Rng rng(7);
    for (int32_t accepted = 0; accepted <= kDrafts; ++accepted) {
      for (const int32_t prompt : {1, 6}) {
        runner->Forward({{1, Mixed(0, prompt, prompt, rng)}});
        int32_t begin = prompt;
        while (begin + 1 + kDrafts <= length()) {
          const int32_t right = begin + 1 + accepted, end = begin + 1 + kDrafts;
          const auto& logits = runner->Forward({{1, Mixed(begin, right, end, rng)}});
          ASSERT_TRUE(Equal(logits, begin, 1 + accepted))
              << accepted << " accepted of the row at " << begin;
          runner->TakeBack(1, end - right);
          begin = right;
        }
        runner->Drop(1);
      }
    }
  }
}

// Rows of other sequences, of other lengths, on two ranks; chunks of prefill between them.
TEST_P(Rollback, RandomRowsOfManySequencesLeaveNoTrace) {
  const auto runner = Runner({.num_ranks = 2, .page_tokens = 16});
  plain_ = runner->Forward({{0, ids_}});
  runner->Drop(0);
  constexpr int kSequences = 3;
  Rng rng(11);
  std::vector<int32_t> begins(kSequences, 0);
  for (int step = 0; step < 60; ++step) {
    std::vector<DraftRunnerRow> rows;
    std::vector<std::pair<int32_t, int32_t>> right;  // tokens that stand, and that do not
    for (int s = 0; s < kSequences; ++s) {
      int32_t& begin = begins[static_cast<size_t>(s)];
      const auto known = 1 + static_cast<int32_t>(rng.Below(s == 0 ? 20 : 2));
      const auto drafts = static_cast<int32_t>(rng.Below(kDrafts + 1));
      if (begin + known + drafts > length()) {
        runner->Drop(s);
        begin = 0;
      }
      const auto accepted = static_cast<int32_t>(rng.Below(static_cast<uint32_t>(drafts + 1)));
      const int32_t stands = begin + known + accepted, end = begin + known + drafts;
      rows.push_back({s, Mixed(begin, stands, end, rng)});
      right.push_back({stands - begin, end - stands});
    }
    const auto& logits = runner->Forward(rows);
    size_t first = 0;
    for (int s = 0; s < kSequences; ++s) {
      const auto [stands, refused] = right[static_cast<size_t>(s)];
      int32_t& begin = begins[static_cast<size_t>(s)];
      ASSERT_TRUE(Equal(std::span(logits).subspan(first * vocab_), begin, stands))
          << "sequence " << s << " at " << begin << " in step " << step;
      first += static_cast<size_t>(stands + refused);
      runner->TakeBack(s, refused);
      begin += stands;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Rollback,
                         ::testing::Values("deepseek_v4/flash", "deepseek_v4/pro",
                                           "deepseek_v4/ratio_32", "deepseek_v41/tiny",
                                           "deepseek_v3/deepseek_v3", "deepseek_v32/deepseek_v32",
                                           "gpt_oss/gpt_oss", "dense/mistral_window_8"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

}  // namespace
}  // namespace hayate::models
