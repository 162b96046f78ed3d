// Speculation over the simulator: whatever is drafted, every answer is that of the same request
// alone, and every page comes back.

#include <gtest/gtest.h>

#include "engine/testing/random_life.h"
#include "engine/testing/world.h"

namespace hayate::engine {
namespace {

using testing::kStopToken;
using testing::MakeRequest;
using testing::RandomPrompt;
using testing::Solo;
using testing::World;
using testing::WorldOptions;

WorldOptions ModelDrafts(int32_t max_drafts, float quality) {
  WorldOptions options;
  options.scheduler.max_drafts = max_drafts;
  options.scheduler.max_step_drafts = 8 * max_drafts;
  options.scheduler.draft_lookahead = max_drafts;
  options.draft_source = DraftSource::kModel;
  options.draft_quality = quality;
  return options;
}

TEST(Speculation, PerfectDraftsBringARowFullOfTokens) {
  World world(ModelDrafts(4, 1.0f));
  Rng rng(1);
  Request request = MakeRequest(RandomPrompt(rng, 30), 51);
  request.sampling.ignore_eos = true;
  const RequestId id = world.Submit(request);
  world.Settle();
  EXPECT_EQ(world.Tokens(id), Solo(request));
  // The first token comes without drafts, then five a step.
  EXPECT_EQ(world.Last(id).num_verifies, 10);
  EXPECT_EQ(world.Last(id).num_drafts, 40);
  EXPECT_EQ(world.Last(id).num_accepted_drafts, 40);
  EXPECT_EQ(world.speculation_metrics_.verify_calls.value(), 10u);
  EXPECT_EQ(world.speculation_metrics_.accepted_tokens.value(), 40u);
  world.ExpectAtRest();
}

TEST(Speculation, UselessDraftsChangeNothing) {
  World world(ModelDrafts(3, 0.0f));
  Rng rng(2);
  const Request request = MakeRequest(RandomPrompt(rng, 17), 60);
  const RequestId id = world.Submit(request);
  world.Settle();
  EXPECT_EQ(world.Tokens(id), Solo(request));
  EXPECT_LT(world.Last(id).num_accepted_drafts, 10);
  world.ExpectAtRest();
}

TEST(Speculation, AStopTokenInsideTheDraftsEndsTheAnswerThere) {
  Rng rng(3);
  int ended_inside = 0;
  for (int i = 0; i < 60; ++i) {
    World world(ModelDrafts(6, 1.0f));
    const Request request = MakeRequest(RandomPrompt(rng, 9), 100);
    const RequestId id = world.Submit(request);
    world.Settle();
    const std::vector<TokenId> answer = world.Tokens(id);
    ASSERT_EQ(answer, Solo(request));
    ended_inside += answer.back() == kStopToken && (answer.size() - 1) % 7 != 0;
    EXPECT_EQ(world.Last(id).tokens.back(), answer.back());
    world.ExpectAtRest();
  }
  EXPECT_GT(ended_inside, 10);
}

TEST(Speculation, ForcedAcceptanceBringsTheDeclaredLength) {
  WorldOptions options = ModelDrafts(4, 0.0f);
  options.forced_accept_length = 3.25;
  World world(options);
  Rng rng(4);
  Request request = MakeRequest(RandomPrompt(rng, 20), 131);
  request.sampling.ignore_eos = true;
  const RequestId id = world.Submit(request);
  world.Settle();
  EXPECT_EQ(world.Tokens(id).size(), 131u);
  EXPECT_NEAR(130.0 / world.Last(id).num_verifies, 3.25, 0.1);
  world.ExpectAtRest();
}

// With a drafter that is never right.
TEST(Speculation, AFixedLengthIsVerifiedWhateverItCosts) {
  for (const bool fixed : {true, false}) {
    WorldOptions options = ModelDrafts(4, 0.0f);
    options.step_cost.clear();
    if (!fixed) options.step_cost = {{.tokens = 1, .ns = 1e6}, {.tokens = 2, .ns = 2e6}};
    World world(options);
    Rng rng(5);
    Request request = MakeRequest(RandomPrompt(rng, 20), 61);
    request.sampling.ignore_eos = true;
    const RequestId id = world.Submit(request);
    world.Settle();
    EXPECT_EQ(world.Tokens(id), Solo(request));
    // No draft stands, and the last token has none.
    EXPECT_EQ(world.Last(id).num_verifies, fixed ? 59 : 0);
    // 59 rows of four, but for the last three tokens'.
    EXPECT_EQ(world.Last(id).num_drafts, fixed ? 59 * 4 - 1 - 2 - 3 : 0);
    world.ExpectAtRest();
  }
}

// A device that computes 32 tokens in the time of one. Drafts are verified as far as they cost
// nothing, and the confident ones a little further.
TEST(Speculation, TheMoreSequencesRunTheFewerDraftsEachVerifies) {
  double before = 1e9;
  for (const int32_t batch : {1, 4, 8, 16, 32, 64}) {
    WorldOptions options = ModelDrafts(5, 0.0f);
    options.draft_confidences = true;
    options.total_tokens = 16384;
    options.scheduler.max_running = batch;
    options.scheduler.max_step_drafts = 5 * batch;
    options.scheduler.chunked_prefill_size = 1024;
    options.step_cost = {{1, 1e6}, {32, 1e6}, {64, 2e6}, {512, 16e6}};
    World world(options);
    Rng rng(6);
    std::vector<RequestId> ids;
    for (int32_t i = 0; i < batch; ++i) {
      Request request = MakeRequest(RandomPrompt(rng, 8), 60);
      request.sampling.ignore_eos = true;
      ids.push_back(world.Submit(request));
    }
    double highest = 0;
    while (world.engine_->Turn()) {
      world.Collect();
      highest = std::max(highest, world.speculation_metrics_.chosen_drafts.value());
    }
    world.Collect();
    double verifies = 0, drafts = 0;
    for (const RequestId id : ids) {
      verifies += world.Last(id).num_verifies;
      drafts += world.Last(id).num_drafts;
    }
    const double per_sequence = drafts / (60.0 * batch);
    // The metric is of a whole step.
    EXPECT_GE(highest, per_sequence * batch);
    EXPECT_LE(highest, 5.0 * batch);
    EXPECT_LE(per_sequence, before) << batch;
    before = per_sequence;
  }
  EXPECT_LT(before, 0.5);
}

TEST(Speculation, TheNextRequestMayReuseWhatStoodAndNothingElse) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    World world(ModelDrafts(5, 0.6f));
    Rng rng(seed);
    Request request = MakeRequest(RandomPrompt(rng, 21), 60);
    request.sampling.ignore_eos = true;
    const RequestId first = world.Submit(request);
    world.Settle();
    std::vector<TokenId> longer = request.prompt;
    const std::vector<TokenId> answer = world.Tokens(first);
    longer.insert(longer.end(), answer.begin(), answer.end());
    const Request next = MakeRequest(longer, 30);
    const RequestId second = world.Submit(next);
    world.Settle();
    ASSERT_GE(world.Last(second).cached_tokens, 76);
    ASSERT_EQ(world.Tokens(second), Solo(next));
    world.ExpectAtRest();
  }
}

TEST(Speculation, ThousandsOfRandomSchedulesAnswerAsIfAloneAndLoseNoPage) {
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Rng rng(seed);
    WorldOptions options = testing::RandomWorld(rng);
    sched::SchedulerOptions& scheduler = options.scheduler;
    scheduler.max_drafts = rng.Between(1, 9);
    scheduler.max_step_drafts = scheduler.max_drafts * rng.Between(1, 6);
    if (rng.Below(3) == 0) {
      options.draft_source = DraftSource::kNgram;
    } else {
      options.draft_source = DraftSource::kModel;
      scheduler.draft_lookahead = scheduler.max_drafts;
    }
    options.draft_quality = rng.NextFloat();
    World world(options);
    testing::LiveRandomly(world, rng);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace hayate::engine
