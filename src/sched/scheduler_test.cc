#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include "base/rng.h"

namespace hayate::sched {
namespace {

constexpr int32_t kPageTokens = 4;

// A scheduler over a cache of `num_pages` usable pages, and an executor that is done at once.
class World {
 public:
  World(SchedulerOptions options, int32_t num_pages) {
    CacheLayout layout{.page_tokens = kPageTokens};
    layout.groups.push_back({.name = "kv", .kind = CacheKind::kFull, .page_bytes = 1});
    cache_ = kv::KvCaches::Create({layout, {num_pages + 1}}, options.num_dp_ranks).value();
    if (options.max_context == 0) options.max_context = 400;
    scheduler_ = std::make_unique<Scheduler>(options, *cache_, clock_);
  }

  Sequence& Add(std::vector<TokenId> prompt, int32_t max_new_tokens, LogprobParams logprobs = {}) {
    Request request;
    request.id = {next_id_++};
    request.prompt = std::move(prompt);
    request.sampling.max_new_tokens = max_new_tokens;
    request.logprobs = logprobs;
    EXPECT_TRUE(scheduler_->Validate(request).ok());
    return scheduler_->Add(std::move(request));
  }

  // One step, planned and carried out. False when there was nothing to do.
  bool Step() {
    if (!scheduler_->Plan(plan_)) return false;
    scheduler_->Submitted(plan_);
    scheduler_->Retired(plan_.step);
    for (const StepRow& row : plan_.rows) {
      Sequence& sequence = *scheduler_->InSlot(row.slot);
      if (row.samples) scheduler_->Append(sequence, next_token_++);
      if (!sequence.wants_row()) scheduler_->Finish(sequence, FinishMode::kPublish);
    }
    return true;
  }
  void Settle() {
    while (Step()) {
    }
    EXPECT_TRUE(scheduler_->idle());
    EXPECT_TRUE(cache_->CheckIntegrity().ok());
  }

  VirtualClock clock_;
  std::unique_ptr<kv::KvCaches> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  StepPlan plan_;

 private:
  uint64_t next_id_ = 1;
  TokenId next_token_ = 1'000'000;  // never that of a prompt
};

// `length` tokens that no other `family` holds.
std::vector<TokenId> Prompt(TokenId family, int32_t length) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < length; ++i) tokens.push_back(family * 1000 + i);
  return tokens;
}

TEST(Scheduler, RefusesWhatCanNeverRunAndSaysWhy) {
  World world({.max_context = 100}, 10);
  Request request;
  EXPECT_EQ(world.scheduler_->Validate(request).param(), "prompt");
  request.prompt = Prompt(1, 50);
  request.sampling.max_new_tokens = 51;
  EXPECT_EQ(world.scheduler_->Validate(request).code(), ErrorCode::kContextTooLong);
  request.sampling.max_new_tokens = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(world.scheduler_->Validate(request).code(), ErrorCode::kContextTooLong);
  request.sampling.max_new_tokens = 0;  // 13 pages of 10
  const Status status = world.scheduler_->Validate(request);
  EXPECT_EQ(status.code(), ErrorCode::kContextTooLong);
  EXPECT_NE(status.message().find("'kv'"), std::string::npos) << status.message();
  request.prompt.resize(40);
  EXPECT_TRUE(world.scheduler_->Validate(request).ok());
}

TEST(Scheduler, MixesDecodeRowsWithTheNextChunk) {
  World world({.chunked_prefill_size = 8}, 50);
  world.Add(Prompt(1, 6), 5);
  ASSERT_TRUE(world.Step());
  Sequence& second = world.Add(Prompt(2, 20), 1);
  ASSERT_TRUE(world.Step());
  ASSERT_EQ(world.plan_.rows.size(), 2u);
  EXPECT_EQ(world.plan_.rows[0].num_tokens(), 1);  // decode does not use the prefill budget
  EXPECT_EQ(world.plan_.rows[1].num_tokens(), 8);
  EXPECT_FALSE(world.plan_.rows[1].samples);
  EXPECT_EQ(second.planned, 8);
  world.Settle();
}

TEST(Scheduler, AStepThatDecodesTakesFewerPromptTokens) {
  World world({.chunked_prefill_size = 16, .mixed_chunk_size = 4}, 50);
  world.Add(Prompt(1, 40), 3);
  ASSERT_TRUE(world.Step());
  EXPECT_EQ(world.plan_.num_tokens, 16);  // nobody waits for this step
  ASSERT_TRUE(world.Step());
  ASSERT_TRUE(world.Step());
  EXPECT_EQ(world.plan_.num_tokens, 8);
  world.Add(Prompt(2, 40), 1);
  ASSERT_TRUE(world.Step());
  EXPECT_EQ(world.plan_.num_tokens, 1 + 4);
  ASSERT_TRUE(world.Step());
  EXPECT_EQ(world.plan_.num_tokens, 1 + 4);
  ASSERT_TRUE(world.Step());  // the first answer is whole
  EXPECT_EQ(world.plan_.num_tokens, 16);
  world.Settle();
}

TEST(Scheduler, AMixedStepHasWholeTilesOfTokens) {
  World world({.chunked_prefill_size = 64, .mixed_chunk_size = 12, .mixed_step_multiple = 8}, 50);
  for (int32_t i = 1; i <= 3; ++i) world.Add(Prompt(i, 10), 20);
  ASSERT_TRUE(world.Step());  // three prompts
  world.Add(Prompt(4, 100), 1);
  ASSERT_TRUE(world.Step());
  EXPECT_EQ(world.plan_.num_tokens, 16);  // 3 decodes and 13 fill two tiles of 8
  world.Add(Prompt(5, 100), 3);
  for (int32_t i = 0; i < 6; ++i) ASSERT_TRUE(world.Step());
  EXPECT_EQ(world.plan_.num_tokens, 16);
  world.Settle();
}

TEST(Scheduler, AMixedStepTakesMoreWhilePromptsPileUp) {
  World world({.max_running = 12, .chunked_prefill_size = 64, .mixed_chunk_size = 4}, 900);
  world.Add(Prompt(1, 8), 160);
  ASSERT_TRUE(world.Step());
  for (int32_t i = 2; i <= 11; ++i) world.Add(Prompt(i, 96), 1);
  std::vector<int32_t> tokens;  // of prompts, a step
  for (int step = 0; step < 150; ++step) {
    ASSERT_TRUE(world.Step());
    tokens.push_back(world.plan_.num_tokens - 1);
  }
  // 960 tokens are 96 steps of 10; once those that are left are 96 of 4, that must do.
  EXPECT_EQ(tokens.front(), 10);
  EXPECT_EQ(std::ranges::max(tokens), 10);
  EXPECT_NE(std::ranges::find(tokens, 4), tokens.end());
  EXPECT_GE(std::accumulate(tokens.begin(), tokens.end(), 0), 4 * 150);
  world.Settle();
}

TEST(Scheduler, NoBacklogTakesMoreThanFourChunks) {
  World world({.max_running = 12, .chunked_prefill_size = 64, .mixed_chunk_size = 2}, 900);
  world.Add(Prompt(1, 8), 40);
  ASSERT_TRUE(world.Step());
  for (int32_t i = 2; i <= 11; ++i) world.Add(Prompt(i, 200), 1);
  ASSERT_TRUE(world.Step());
  EXPECT_EQ(world.plan_.num_tokens, 1 + 8);
  world.Settle();
}

TEST(Scheduler, AMixedStepTakesNoMorePromptTokensThanNearlyDoubleItsTime) {
  World world({.max_running = 16,
               .chunked_prefill_size = 64,
               .mixed_chunk_size = 32,
               .mixed_step_multiple = 8},
              400);
  for (int32_t i = 1; i <= 4; ++i) world.Add(Prompt(i, 10), 60);
  ASSERT_TRUE(world.Step());
  const auto prompt_tokens = [&](double token_ns) {
    EXPECT_TRUE(world.Step());
    const int32_t tokens = world.plan_.num_tokens - 4;
    world.scheduler_->Took(world.plan_, static_cast<int64_t>(10'000 + tokens * token_ns));
    return tokens;
  };
  EXPECT_EQ(prompt_tokens(560.0), 0);
  world.Add(Prompt(5, 390), 1);
  EXPECT_EQ(prompt_tokens(560.0), 28);  // nothing is known of such steps
  for (int i = 0; i < 6; ++i) prompt_tokens(560.0);
  EXPECT_EQ(prompt_tokens(560.0), 16);  // 8.8 µs are some 16; 4 and 16 are quarters of a tile
  for (int i = 0; i < 6; ++i) prompt_tokens(5000.0);
  EXPECT_EQ(prompt_tokens(5000.0), 8);  // a quarter of 32, whatever it takes
  world.Settle();
}

TEST(Scheduler, AMixedStepTakesPromptTokensHoweverManyDecode) {
  World world({.max_running = 16,
               .chunked_prefill_size = 64,
               .mixed_chunk_size = 2,
               .mixed_step_multiple = 64},
              90);
  for (int32_t i = 1; i <= 9; ++i) world.Add(Prompt(i, 5), 20);
  ASSERT_TRUE(world.Step());
  world.Add(Prompt(20, 30), 1);
  ASSERT_TRUE(world.Step());
  EXPECT_EQ(world.plan_.num_tokens, 9 + 2);  // no whole tile behind the decodes
  world.Settle();
}

TEST(Scheduler, AMixedStepDoesNotEndAtATileThatLeavesItHardlyAnyPromptTokens) {
  World world({.max_running = 16,
               .chunked_prefill_size = 64,
               .mixed_chunk_size = 6,
               .mixed_step_multiple = 16},
              200);
  for (int32_t i = 1; i <= 15; ++i) world.Add(Prompt(i, 4), 20);
  ASSERT_TRUE(world.Step());
  world.Add(Prompt(20, 30), 1);
  ASSERT_TRUE(world.Step());
  EXPECT_EQ(world.plan_.num_tokens, 15 + 6);  // 16 would be the nearest tile
  world.Settle();
}

TEST(Scheduler, HoldsARequestUntilThePrefixUnderWayIsThere) {
  World world({.chunked_prefill_size = 32}, 50);
  world.Add(Prompt(1, 20), 3);
  Sequence& held = world.Add(Prompt(1, 21), 1);
  ASSERT_TRUE(world.Step());
  EXPECT_EQ(world.plan_.rows.size(), 1u);
  EXPECT_FALSE(held.running());
  ASSERT_TRUE(world.scheduler_->Plan(world.plan_));
  EXPECT_EQ(held.cached_tokens, 20);
}

TEST(Scheduler, DoesNotHoldARequestForAPrefixThatItMustScoreItself) {
  World world({.chunked_prefill_size = 32}, 50);
  world.Add(Prompt(1, 20), 3);
  Sequence& scored = world.Add(Prompt(1, 21), 1, {.enabled = true, .prompt_start = 0});
  ASSERT_TRUE(world.Step());
  EXPECT_TRUE(scored.running());
  EXPECT_EQ(world.plan_.rows.size(), 2u);
  world.Settle();
}

TEST(Scheduler, LpmServesTheLongestPrefixFirstButNobodyWaitsForEver) {
  World world({.policy = Policy::kLpm, .max_running = 1}, 100);
  world.Add(Prompt(1, 20), 1);
  world.Settle();
  Sequence& stranger = world.Add(Prompt(2, 20), 1);
  TokenId suffix = 10;
  int served_before = 0;
  for (; !stranger.running(); ++served_before) {
    ASSERT_LE(served_before, 65) << "bypassed for ever";
    for (int i = 0; i < 2; ++i) {
      std::vector<TokenId> prompt = Prompt(1, 20);
      prompt.push_back(suffix++);
      world.Add(std::move(prompt), 1);
    }
    ASSERT_TRUE(world.scheduler_->Plan(world.plan_));
    ASSERT_EQ(world.plan_.rows.size(), 1u);
    world.scheduler_->Submitted(world.plan_);
    world.scheduler_->Retired(world.plan_.step);
    if (stranger.running()) break;
    Sequence& sequence = *world.scheduler_->InSlot(world.plan_.rows[0].slot);
    EXPECT_EQ(sequence.cached_tokens, 20);
    world.scheduler_->Append(sequence, 5);
    world.scheduler_->Finish(sequence, FinishMode::kPublish);
  }
  EXPECT_GT(served_before, 30);
}

TEST(Scheduler, WaitsForMemoryAndLetsNobodyOvertake) {
  World world({}, 10);
  Sequence& first = world.Add(Prompt(1, 8), 20);
  Sequence& large = world.Add(Prompt(2, 8), 20);
  Sequence& small = world.Add(Prompt(3, 1), 1);
  ASSERT_TRUE(world.Step());
  EXPECT_TRUE(first.running());
  EXPECT_FALSE(large.running());
  EXPECT_FALSE(small.running());
  world.Settle();
}

TEST(Scheduler, RetractsTheLastInOrderWhenMemoryRunsOut) {
  World world({}, 10);
  Sequence& first = world.Add(Prompt(1, 8), 30);
  Sequence& second = world.Add(Prompt(2, 4), 4);
  ASSERT_TRUE(world.Step());
  ASSERT_TRUE(first.running());
  // The reserve's forecast let a second one in that grows beyond it.
  second.request.sampling.max_new_tokens = 28;
  while (world.scheduler_->stats().num_retractions == 0) ASSERT_TRUE(world.Step());
  EXPECT_EQ(first.retractions, 0);
  EXPECT_FALSE(second.running());
  EXPECT_EQ(second.planned, 0);
  EXPECT_GT(second.num_generated(), 0);
  world.Settle();
}

TEST(Scheduler, KnowsTheEarliestDeadlineAndForgetsItWithTheRequest) {
  World world({}, 50);
  EXPECT_EQ(world.scheduler_->next_deadline_ns(), kNoDeadline);
  for (const int64_t deadline : {300, 100, 200}) {
    Request request;
    request.id = {static_cast<uint64_t>(deadline)};
    request.prompt = {1, 2, 3};
    request.deadline_ns = deadline;
    world.scheduler_->Add(std::move(request));
  }
  EXPECT_EQ(world.scheduler_->NextExpired(99), nullptr);
  Sequence* expired = world.scheduler_->NextExpired(250);
  ASSERT_NE(expired, nullptr);
  EXPECT_EQ(expired->request.id.value, 100u);
  world.scheduler_->Finish(*expired, FinishMode::kDrop);
  EXPECT_EQ(world.scheduler_->next_deadline_ns(), 200);
  while (Sequence* any = world.scheduler_->Any()) {
    world.scheduler_->Finish(*any, FinishMode::kDrop);
  }
  EXPECT_EQ(world.scheduler_->next_deadline_ns(), kNoDeadline);
}

TEST(Scheduler, ANewSequenceGoesWhereItsPrefixLiesElseToTheEmptiestDpRank) {
  World world({.max_running = 24, .num_dp_ranks = 3}, 200);
  Sequence& first = world.Add(Prompt(1, 20), 30);
  Sequence& second = world.Add(Prompt(2, 20), 30);
  Sequence& third = world.Add(Prompt(3, 20), 30);
  ASSERT_TRUE(world.Step());
  const auto dp_rank = [](const Sequence& sequence) { return sequence.slot.value % 3; };
  EXPECT_NE(dp_rank(first), dp_rank(second));
  EXPECT_NE(dp_rank(first), dp_rank(third));
  EXPECT_NE(dp_rank(second), dp_rank(third));
  // Twenty tokens of the second's are there: what shares them joins it, until it is far ahead.
  std::vector<Sequence*> sharers;
  for (int i = 0; i < 6; ++i) {
    std::vector<TokenId> prompt = Prompt(2, 20);
    prompt.push_back(i);
    sharers.push_back(&world.Add(std::move(prompt), 30));
    ASSERT_TRUE(world.Step());
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(dp_rank(*sharers[static_cast<size_t>(i)]), dp_rank(second));
    EXPECT_EQ(sharers[static_cast<size_t>(i)]->cached_tokens, 20);
  }
  EXPECT_NE(dp_rank(*sharers[5]), dp_rank(second));
  EXPECT_EQ(sharers[5]->cached_tokens, 0);
  world.Settle();
}

TEST(Scheduler, ADpRankWithoutMemoryRetractsItsOwnAlone) {
  World world({.max_running = 4, .num_dp_ranks = 2}, 10);
  Sequence& a = world.Add(Prompt(1, 8), 30);
  Sequence& b = world.Add(Prompt(2, 8), 30);
  Sequence& c = world.Add(Prompt(3, 4), 4);
  ASSERT_TRUE(world.Step());
  ASSERT_TRUE(a.running() && b.running() && c.running());
  // The forecast let a second one in beside one of the two.
  const Sequence& partner = c.slot.value % 2 == a.slot.value % 2 ? a : b;
  const Sequence& other = &partner == &a ? b : a;
  c.request.sampling.max_new_tokens = 28;
  while (world.scheduler_->stats().num_retractions == 0) ASSERT_TRUE(world.Step());
  EXPECT_EQ(partner.retractions, 0);
  EXPECT_EQ(other.retractions, 0);
  EXPECT_GT(c.retractions, 0);
  world.Settle();
}

TEST(Scheduler, NoPlanExceedsItsBounds) {
  Rng rng(1);
  for (int life = 0; life < 200; ++life) {
    const int32_t max_running = rng.Between(1, 6);
    const SchedulerOptions options{.policy = static_cast<Policy>(rng.Below(3)),
                                   .max_running = max_running,
                                   .num_dp_ranks = rng.Between(1, std::min(3, max_running)),
                                   .chunked_prefill_size = rng.Between(1, 24),
                                   .max_scored_tokens = rng.Between(1, 5)};
    World world(options, rng.Between(20, 60));
    for (int i = 0; i < 20; ++i) {
      const int32_t length = rng.Between(1, 40);
      const int32_t scored_from = rng.Below(3) == 0 ? rng.Between(0, length) : -1;
      world.Add(Prompt(rng.Between(1, 3), length), rng.Between(0, 30),
                {.enabled = true, .prompt_start = scored_from});
    }
    while (world.Step()) {
      const StepPlan& plan = world.plan_;
      int32_t num_logits = 0;
      std::set<SlotId> slots;
      std::vector<int32_t> num_tokens(static_cast<size_t>(options.num_dp_ranks));
      for (const StepRow& row : plan.rows) {
        num_logits += row.num_scored + (row.samples ? 1 : 0);
        num_tokens[static_cast<size_t>(row.slot.value % options.num_dp_ranks)] += row.num_tokens();
        ASSERT_TRUE(slots.insert(row.slot).second);
        ASSERT_GE(row.num_tokens(), 1);
      }
      ASSERT_LE(std::ranges::max(num_tokens), options.max_step_tokens());
      ASSERT_LE(num_logits, options.max_step_logits());
    }
    ASSERT_TRUE(world.scheduler_->idle());
  }
}

}  // namespace
}  // namespace hayate::sched
