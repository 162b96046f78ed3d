#include "exec/slot_sampler.h"

#include <gtest/gtest.h>

#include <cmath>

namespace hayate::exec {
namespace {

constexpr int32_t kVocab = 4;
constexpr StepLimits kLimits = {.max_rows = 4,
                                .max_tokens = 8,
                                .max_logits = 8,
                                .page_tokens = 4,
                                .max_slot_pages = 4,
                                .num_groups = 1};

// One sampler of a group, with logits given by hand.
class Bench {
 public:
  explicit Bench(int rank = 0, int num_ranks = 1)
      : device_(MakeCpuDevice(0)),
        stream_(device_->NewStream()),
        workspace_(
            Buffer::Allocate(*device_, static_cast<size_t>(ops::SampleWorkspaceBytes(kVocab)))
                .value()),
        tables_(1, kLimits.max_rows, kLimits.max_slot_pages),
        staged_(kLimits),
        sampler_({.rank = rank, .num_ranks = num_ranks, .max_slots = 4, .vocab_size = kVocab}) {}

  void Start(SlotStart start) { plan_.starts.push_back(std::move(start)); }
  // A row of one token that samples.
  void Decode(int32_t slot, int32_t position) {
    plan_.rows.push_back({.slot = {slot},
                          .begin = position,
                          .end = position + 1,
                          .first_token = kLateToken,
                          .samples = true});
    ++plan_.num_tokens;
  }
  // The token at `position` and drafts behind it.
  void Verify(int32_t slot, int32_t position, std::vector<TokenId> tokens) {
    StepRow row{.slot = {slot},
                .begin = position,
                .end = position + static_cast<int32_t>(tokens.size()),
                .first_token = static_cast<int32_t>(plan_.tokens.size()),
                .samples = true,
                .num_drafts = static_cast<int32_t>(tokens.size()) - 1};
    plan_.tokens.insert(plan_.tokens.end(), tokens.begin(), tokens.end());
    plan_.rows.push_back(row);
    plan_.num_tokens += row.num_tokens();
  }
  std::vector<RowResult> Run(std::vector<float> logits) {
    sampler_.Apply(plan_);
    staged_.Build(plan_, tables_, last_tokens_, logits.data());
    std::vector<RowResult> results(plan_.rows.size());
    sampler_.Run(stream_, workspace_, plan_, staged_, results, last_tokens_);
    plan_.Clear();
    return results;
  }

  StepPlan plan_;
  int32_t last_tokens_[4] = {-1, -1, -1, -1};

 private:
  std::unique_ptr<Device> device_;
  Stream stream_;
  Workspace workspace_;
  SlotTables tables_;
  StagedStep staged_;
  SlotSampler sampler_;
};

SamplingParams Greedy() { return {.temperature = 0.0f}; }

TEST(SlotSampler, DrawsTheRowsOfItsOwnSlotsAlone) {
  Bench bench(1, 2);
  for (const int32_t slot : {0, 1, 3}) {
    bench.Start({.slot = {slot}, .sampling = Greedy()});
    bench.Decode(slot, 5);
  }
  const auto results = bench.Run({9, 0, 0, 0, /**/ 0, 9, 0, 0, /**/ 0, 0, 0, 9});
  EXPECT_TRUE(results[0].tokens.empty());
  EXPECT_EQ(results[1].tokens, std::vector<TokenId>{1});
  EXPECT_EQ(results[2].tokens, std::vector<TokenId>{3});
  EXPECT_EQ(bench.last_tokens_[0], -1);
  EXPECT_EQ(bench.last_tokens_[1], 1);
  EXPECT_EQ(bench.last_tokens_[3], 3);
}

TEST(SlotSampler, CountsWhatItDrewAndWhatARetractedSequenceBringsBack) {
  Bench bench;
  SamplingParams penalised = Greedy();
  penalised.frequency_penalty = 1.0f;
  bench.Start({.slot = {0}, .sampling = penalised, .prompt_length = 3, .outputs = {2, 2}});
  bench.Decode(0, 5);
  EXPECT_EQ(bench.Run({0, 0.5f, 2, 0})[0].tokens, std::vector<TokenId>{1});  // 2 − 2·1 < 0.5
  bench.Decode(0, 6);
  EXPECT_EQ(bench.Run({0.1f, 1, 2, 0})[0].tokens, std::vector<TokenId>{0});  // 1 was drawn above
  bench.Start({.slot = {0}, .sampling = penalised, .prompt_length = 3});
  bench.Decode(0, 2);
  EXPECT_EQ(bench.Run({0, 0.5f, 2, 0})[0].tokens, std::vector<TokenId>{2});  // a new sequence
}

TEST(SlotSampler, BansStopTokensBelowTheMinimumAndNotAtIt) {
  Bench bench;
  SamplingParams sampling = Greedy();
  sampling.min_new_tokens = 2;
  sampling.stop_token_ids = {3};
  bench.Start({.slot = {0}, .sampling = sampling, .prompt_length = 4});
  for (const int32_t position : {3, 4}) {
    bench.Decode(0, position);
    EXPECT_EQ(bench.Run({0, 1, 0, 9})[0].tokens, std::vector<TokenId>{1}) << position;
  }
  bench.Decode(0, 5);
  EXPECT_EQ(bench.Run({0, 1, 0, 9})[0].tokens, std::vector<TokenId>{3});
}

TEST(SlotSampler, ScoresTokensAskedForByIdFromTheRawLogits) {
  Bench bench;
  SamplingParams biased = Greedy();
  biased.logit_bias = {{3, 100.0f}};
  bench.Start(
      {.slot = {0}, .sampling = biased, .logprobs = {.enabled = true, .token_ids = {2, 0}}});
  bench.Decode(0, 0);
  const auto results = bench.Run({0, 0, std::log(2.0f), 0});
  ASSERT_EQ(results[0].logprobs.size(), 1u);
  EXPECT_EQ(results[0].tokens, std::vector<TokenId>{3});
  const auto& asked = results[0].logprobs[0].asked;
  ASSERT_EQ(asked.size(), 2u);
  EXPECT_EQ(asked[0].first, 2);
  EXPECT_NEAR(asked[0].second, std::log(2.0f / 5.0f), 1e-6);
  EXPECT_EQ(asked[1].first, 0);
  EXPECT_NEAR(asked[1].second, std::log(1.0f / 5.0f), 1e-6);
}

TEST(SlotSampler, AppliesTheBiasOfTheSlot) {
  Bench bench;
  SamplingParams biased = Greedy();
  biased.logit_bias = {{2, 5.0f}};
  bench.Start({.slot = {1}, .sampling = biased});
  bench.Decode(1, 0);
  EXPECT_EQ(bench.Run({1, 0, 0, 0})[0].tokens, std::vector<TokenId>{2});
}

TEST(SlotSampler, BadLogitsAreReportedAndLeaveAValidToken) {
  Bench bench;
  for (const int32_t slot : {0, 1}) {
    bench.Start({.slot = {slot}, .sampling = Greedy()});
    bench.Decode(slot, 1);
  }
  const auto results = bench.Run({0, NAN, 0, 0, /**/ 0, 0, 7, 0});
  EXPECT_TRUE(results[0].bad_logits);
  EXPECT_EQ(bench.last_tokens_[0], 0);
  EXPECT_FALSE(results[1].bad_logits);
  EXPECT_EQ(results[1].tokens, std::vector<TokenId>{2});
}

TEST(SlotSampler, ScoresPromptTokensFromTheRawLogits) {
  Bench bench;
  bench.Start({.slot = {0}, .sampling = Greedy(), .logprobs = {.num_top = 1, .prompt_start = 1}});
  bench.plan_.tokens = {1, 3, 2};
  bench.plan_.rows = {{.slot = {0},
                       .begin = 0,
                       .end = 2,
                       .first_token = 0,
                       .samples = false,
                       .score_begin = 0,
                       .num_scored = 2}};
  bench.plan_.num_tokens = 2;
  const auto results = bench.Run({0, 0, 0, 0, /**/ 0, 0, std::log(5.0f), 0});
  EXPECT_TRUE(results[0].tokens.empty());
  ASSERT_EQ(results[0].prompt_logprobs.size(), 2u);
  EXPECT_EQ(results[0].prompt_logprobs[0].token, 3);
  EXPECT_NEAR(results[0].prompt_logprobs[0].logprob, std::log(0.25f), 1e-6f);
  EXPECT_EQ(results[0].prompt_logprobs[1].token, 2);
  EXPECT_NEAR(results[0].prompt_logprobs[1].logprob, std::log(5.0f / 8.0f), 1e-6f);
  ASSERT_EQ(results[0].prompt_logprobs[1].top.size(), 1u);
  EXPECT_EQ(results[0].prompt_logprobs[1].top[0].first, 2);
}

TEST(SlotSampler, ReportsLogprobsOnlyWhereTheSlotAskedForThem) {
  Bench bench;
  bench.Start({.slot = {0}, .sampling = Greedy(), .logprobs = {.enabled = true, .num_top = 2}});
  bench.Start({.slot = {1}, .sampling = Greedy()});
  bench.Decode(0, 1);
  bench.Decode(1, 1);
  const auto results = bench.Run({0, 0, 4, 1, /**/ 0, 0, 4, 1});
  ASSERT_EQ(results[0].logprobs.size(), 1u);
  EXPECT_EQ(results[0].logprobs[0].token, 2);
  EXPECT_EQ(results[0].logprobs[0].rank, 0);
  ASSERT_EQ(results[0].logprobs[0].top.size(), 2u);
  EXPECT_EQ(results[0].logprobs[0].top[1].first, 3);
  EXPECT_TRUE(results[1].logprobs.empty());
}

TEST(SlotSampler, ARowBringsTheDrawsUpToTheFirstThatIsNotItsDraft) {
  Bench bench;
  bench.Start({.slot = {0}, .sampling = Greedy()});
  bench.Verify(0, 5, {1, /*drafts*/ 2, 3, 0});
  const auto results = bench.Run({0, 0, 9, 0, /**/ 0, 9, 0, 0, /**/ 0, 0, 0, 9, /**/ 9, 0, 0, 0});
  EXPECT_EQ(results[0].tokens, (std::vector<TokenId>{2, 1}));
  EXPECT_EQ(bench.last_tokens_[0], 1);
}

TEST(SlotSampler, AllDraftsRightBringOneTokenMore) {
  Bench bench;
  bench.Start({.slot = {0}, .sampling = Greedy(), .logprobs = {.enabled = true}});
  bench.Verify(0, 5, {1, /*drafts*/ 2, 3});
  const auto results = bench.Run({0, 0, 9, 0, /**/ 0, 0, 0, 9, /**/ 9, 0, 0, 0});
  EXPECT_EQ(results[0].tokens, (std::vector<TokenId>{2, 3, 0}));
  EXPECT_EQ(results[0].logprobs.size(), 3u);
}

TEST(SlotSampler, PenaltiesCountTheDraftsThatStandBeforeAPosition) {
  Bench bench;
  SamplingParams penalised = Greedy();
  penalised.frequency_penalty = 2.0f;
  bench.Start({.slot = {0}, .sampling = penalised});
  bench.Verify(0, 5, {1, /*drafts*/ 2, 2});
  // 2 wins by 3: once, and once more against a penalty of 2; then 1 does.
  const auto results = bench.Run({0, 0, 3, 0, /**/ 0, 0, 3, 0, /**/ 0, 0, 3, 0});
  EXPECT_EQ(results[0].tokens, (std::vector<TokenId>{2, 2, 0}));
  bench.Decode(0, 8);
  EXPECT_EQ(bench.Run({0, 0, 3, 0})[0].tokens, std::vector<TokenId>{1});
}

TEST(SlotSampler, BadLogitsBehindADraftLeaveTheTokensBeforeThem) {
  Bench bench;
  bench.Start({.slot = {0}, .sampling = Greedy()});
  bench.Verify(0, 5, {1, /*drafts*/ 2, 3});
  const auto results = bench.Run({0, 0, 9, 0, /**/ std::nanf(""), 0, 0, 9, /**/ 9, 0, 0, 0});
  EXPECT_EQ(results[0].tokens, std::vector<TokenId>{2});
  EXPECT_TRUE(results[0].bad_logits);
}

}  // namespace
}  // namespace hayate::exec
