#include "engine/engine.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>

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

TEST(Engine, AnswersOneRequestAsIfAlone) {
  World world({});
  Rng rng(1);
  const Request request = MakeRequest(RandomPrompt(rng, 30), 20);
  const RequestId id = world.Submit(request);
  world.Settle();
  EXPECT_EQ(world.Tokens(id), Solo(request));
  EXPECT_TRUE(world.Last(id).finish);
  world.ExpectAtRest();
}

TEST(Engine, ReportsWhyAnAnswerEnded) {
  World world({});
  Rng rng(5);
  Request long_answer = MakeRequest(RandomPrompt(rng, 3), 10);
  long_answer.sampling.ignore_eos = true;
  const RequestId by_length = world.Submit(long_answer);
  Request none = MakeRequest(RandomPrompt(rng, 9), 0);
  const RequestId prompt_only = world.Submit(none);
  Request too_long = MakeRequest(RandomPrompt(rng, 100), 101);
  const RequestId refused = world.Submit(too_long);
  world.Settle();
  EXPECT_EQ(world.Last(by_length).finish, FinishReason::kLength);
  EXPECT_EQ(world.Tokens(by_length).size(), 10u);
  EXPECT_EQ(world.Last(prompt_only).finish, FinishReason::kLength);
  EXPECT_TRUE(world.Tokens(prompt_only).empty());
  EXPECT_EQ(world.Last(refused).finish, FinishReason::kAbort);
  EXPECT_EQ(world.Last(refused).status.code(), ErrorCode::kContextTooLong);
  world.ExpectAtRest();
}

TEST(Engine, ServesARepeatedPromptFromTheCache) {
  World world({});
  Rng rng(2);
  const Request request = MakeRequest(RandomPrompt(rng, 41), 5);
  const RequestId first = world.Submit(request);
  world.Settle();
  const RequestId second = world.Submit(request);
  world.Settle();
  EXPECT_EQ(world.Last(first).cached_tokens, 0);
  EXPECT_EQ(world.Last(second).cached_tokens, 40);
  EXPECT_EQ(world.Tokens(first), world.Tokens(second));
  world.ExpectAtRest();
}

TEST(Engine, ShowsWhatEveryPoolHolds) {
  World world({.page_tokens = 4, .total_tokens = 400, .window = 8});
  Rng rng(3);
  world.Submit(MakeRequest(RandomPrompt(rng, 41), 5));
  const auto shown = [&](const std::string& what, const std::string& pool) {
    const std::string line =
        "hayate:kv_pool_" + what + "{model_name=\"sim\",pool=\"" + pool + "\"} ";
    const std::string text = world.registry_.RenderText();
    const size_t at = text.find(line);
    return at == std::string::npos ? -1.0 : std::stod(text.substr(at + line.size()));
  };
  ASSERT_TRUE(world.engine_->Turn());
  EXPECT_EQ(shown("pages", "full"), 100);
  EXPECT_GE(shown("used_pages", "full"), 10);
  EXPECT_GE(shown("used_pages", "window"), 2);
  world.Settle();
  EXPECT_EQ(shown("used_pages", "full"), 0);
  EXPECT_EQ(shown("used_pages", "window"), 0);
  EXPECT_EQ(shown("cached_pages", "full"), 11);
  EXPECT_GE(shown("cached_pages", "window"), 2);
  world.ExpectAtRest();
}

TEST(Engine, ComputesAPrefixSharedByABurstOnce) {
  World world({.total_tokens = 2000});
  Rng rng(3);
  const std::vector<TokenId> prompt = RandomPrompt(rng, 100);
  std::vector<RequestId> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(world.Submit(MakeRequest(prompt, 4)));
  world.Settle();
  EXPECT_EQ(world.Last(ids[0]).cached_tokens, 0);
  for (size_t i = 1; i < ids.size(); ++i) EXPECT_EQ(world.Last(ids[i]).cached_tokens, 96);
  world.ExpectAtRest();
}

TEST(Engine, NamespacesShareNothing) {
  World world({});
  Rng rng(4);
  Request request = MakeRequest(RandomPrompt(rng, 40), 3);
  request.cache_namespace = "a";
  world.Submit(request);
  world.Settle();
  request.cache_namespace = "b";
  const RequestId other = world.Submit(request);
  world.Settle();
  EXPECT_EQ(world.Last(other).cached_tokens, 0);
}

TEST(Engine, CancelsAtOnceInAnyState) {
  WorldOptions options;
  options.scheduler.max_running = 1;
  World world(options);
  Rng rng(6);
  Request request = MakeRequest(RandomPrompt(rng, 40), 100);
  request.sampling.ignore_eos = true;
  const RequestId running = world.Submit(request);
  const RequestId waiting = world.Submit(request);
  world.engine_->Turn();
  world.engine_->Turn();
  world.client_->Cancel(waiting);
  world.client_->Cancel(running);
  world.client_->Cancel(running);
  world.Settle();
  EXPECT_EQ(world.Last(running).status.code(), ErrorCode::kCancelled);
  EXPECT_EQ(world.Last(waiting).status.code(), ErrorCode::kCancelled);
  world.ExpectAtRest();
}

TEST(Engine, AnEndThatTheReaderFoundCountsAsFinished) {
  World world({});
  Rng rng(16);
  Request request = MakeRequest(RandomPrompt(rng, 40), 100);
  request.sampling.ignore_eos = true;
  const RequestId read = world.Submit(request);
  const RequestId unwanted = world.Submit(request);
  world.engine_->Turn();
  world.engine_->Turn();
  world.client_->Complete(read);
  world.client_->Cancel(unwanted);
  world.Settle();
  EXPECT_EQ(world.Last(read).finish, FinishReason::kStop);
  EXPECT_EQ(world.metrics_.requests.value(), 1u);
  EXPECT_EQ(world.metrics_.aborted_requests.value(), 1u);
  world.ExpectAtRest();
}

TEST(Engine, EndsARequestAtItsDeadline) {
  World world({});
  Rng rng(7);
  Request request = MakeRequest(RandomPrompt(rng, 10), 150);
  request.sampling.ignore_eos = true;
  request.deadline_ns = 20'000'000;
  const RequestId id = world.Submit(request);
  world.Settle();
  EXPECT_EQ(world.Last(id).status.code(), ErrorCode::kDeadlineExceeded);
  EXPECT_GT(world.Tokens(id).size(), 5u);
  world.ExpectAtRest();
}

TEST(Engine, RefusesBeyondTheQueueLimit) {
  WorldOptions options;
  options.max_queued = 2;
  options.scheduler.max_running = 1;
  World world(options);
  Rng rng(8);
  std::vector<RequestId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(world.Submit(MakeRequest(RandomPrompt(rng, 10), 2)));
  world.Settle();
  int refused = 0;
  for (const RequestId id : ids) {
    refused += world.Last(id).status.code() == ErrorCode::kResourceExhausted;
  }
  EXPECT_EQ(refused, 2);  // one runs, two wait
}

TEST(Engine, CancelsAReaderThatFallsBehind) {
  WorldOptions options;
  options.outbox_capacity = 3;
  World world(options);
  Rng rng(9);
  Request request = MakeRequest(RandomPrompt(rng, 10), 100);
  request.sampling.ignore_eos = true;
  const RequestId id = world.Submit(request);
  while (world.engine_->Turn()) {
  }
  world.Collect();
  EXPECT_EQ(world.Last(id).status.code(), ErrorCode::kResourceExhausted);
  world.ExpectAtRest();
}

TEST(Engine, DeviceFailureAnswersEveryoneAndRefusesTheRest) {
  World world({});
  Rng rng(10);
  std::vector<RequestId> ids;
  for (int i = 0; i < 6; ++i) {
    Request request = MakeRequest(RandomPrompt(rng, 20), 50);
    request.sampling.ignore_eos = true;
    ids.push_back(world.Submit(request));
  }
  world.executor_->FailFrom(5);
  world.Settle();
  for (const RequestId id : ids) {
    EXPECT_EQ(world.Last(id).status.code(), ErrorCode::kUnavailable);
  }
  EXPECT_TRUE(world.engine_->failed());
  EXPECT_EQ(world.client_->Submit(MakeRequest({1}, 1)).code(), ErrorCode::kUnavailable);
}

TEST(Engine, FlushesTheCacheOnlyWhenIdle) {
  World world({});
  Rng rng(11);
  const Request request = MakeRequest(RandomPrompt(rng, 40), 30);
  world.Submit(request);
  world.engine_->Turn();
  std::future<Status> busy = world.client_->FlushCache();
  world.engine_->Turn();
  EXPECT_EQ(busy.get().code(), ErrorCode::kUnavailable);
  world.Settle();
  std::future<Status> idle = world.client_->FlushCache();
  world.Settle();
  EXPECT_TRUE(idle.get().ok());
  EXPECT_EQ(world.cache_->counts(0).free, world.cache_->counts(0).usable);
}

TEST(Engine, AnswersEverythingThatPassedTheGateWhenItStops) {
  for (int round = 0; round < 300; ++round) {
    World world({});
    world.engine_->Start();
    std::vector<RequestId> accepted;
    NamedThread client("client", [&] {
      for (;;) {
        Request request = MakeRequest({1, 2, 3}, 300);  // refused by the engine: too long
        request.id = world.client_->NewId();
        const RequestId id = request.id;
        const Status status = world.client_->Submit(std::move(request));
        if (status.code() == ErrorCode::kUnavailable) return;
        if (status.ok()) accepted.push_back(id);
      }
    });
    world.engine_->Stop(0);
    client.Join();
    world.Collect();
    for (const RequestId id : accepted) {
      ASSERT_TRUE(world.events_.contains(id)) << "round " << round;
      ASSERT_TRUE(world.Last(id).finish);
    }
    EXPECT_EQ(world.client_->FlushCache().get().code(), ErrorCode::kUnavailable);
  }
}

TEST(Engine, CountsThePromptsOfRequestsWithoutOutputToo) {
  World world({});
  Rng rng(14);
  const std::vector<TokenId> prompt = RandomPrompt(rng, 40);
  world.Submit(MakeRequest(prompt, 0));
  world.Settle();
  world.Submit(MakeRequest(prompt, 1));
  world.Settle();
  EXPECT_EQ(world.metrics_.prompt_tokens.value(), 80u);
  EXPECT_EQ(world.metrics_.cached_tokens.value(), 36u);
  EXPECT_EQ(world.metrics_.generation_tokens.value(), 1u);
  EXPECT_EQ(world.metrics_.requests.value(), 2u);
}

TEST(Engine, ScoresThePromptAcrossChunksAndCacheHits) {
  WorldOptions options;
  options.scheduler.chunked_prefill_size = 13;
  options.scheduler.max_scored_tokens = 5;
  World world(options);
  Rng rng(12);
  Request request = MakeRequest(RandomPrompt(rng, 60), 3);
  world.Submit(request);
  world.Settle();
  request.logprobs = {.enabled = true, .num_top = 0, .prompt_start = 21};
  const RequestId id = world.Submit(request);
  world.Settle();
  std::vector<TokenLogprob> scored;
  for (const TokenEvent& event : world.events_.at(id)) {
    scored.insert(scored.end(), event.prompt_logprobs.begin(), event.prompt_logprobs.end());
  }
  ASSERT_EQ(scored.size(), 39u);  // positions 21 … 59
  for (size_t i = 0; i < scored.size(); ++i) EXPECT_EQ(scored[i].token, request.prompt[21 + i]);
  EXPECT_EQ(world.Last(id).cached_tokens, 20);
}

TEST(Engine, PriorityPushesOutALowerOneAndBothFinish) {
  WorldOptions options;
  options.scheduler.policy = sched::Policy::kPriority;
  options.scheduler.max_running = 1;
  World world(options);
  Rng rng(13);
  Request low = MakeRequest(RandomPrompt(rng, 20), 60);
  low.sampling.ignore_eos = true;
  const RequestId low_id = world.Submit(low);
  for (int i = 0; i < 5; ++i) world.engine_->Turn();
  Request high = MakeRequest(RandomPrompt(rng, 20), 5);
  high.priority = 10;
  const RequestId high_id = world.Submit(high);
  world.Settle();
  EXPECT_EQ(world.Tokens(high_id), Solo(high));
  EXPECT_EQ(world.Tokens(low_id), Solo(low));
  EXPECT_EQ(world.Last(low_id).retractions, 1);
  world.ExpectAtRest();
}

// One random life of the engine; everything that must hold is checked on the way and at the end.
bool IsReady(const std::future<Status>& done) {
  return done.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

TEST(Engine, APauseHoldsEverythingAndChangesNoAnswer) {
  for (const PauseMode mode : {PauseMode::kRetract, PauseMode::kInPlace}) {
    World world({});
    Rng rng(17);
    Request request = MakeRequest(RandomPrompt(rng, 30), 20);
    request.sampling.ignore_eos = true;
    const RequestId before = world.Submit(request);
    for (int turn = 0; turn < 4; ++turn) world.engine_->Turn();
    auto paused = world.client_->Pause(mode);
    EXPECT_FALSE(IsReady(paused));
    world.Settle();
    ASSERT_TRUE(IsReady(paused));
    EXPECT_TRUE(paused.get().ok());
    EXPECT_TRUE(world.client_->load().paused);
    const size_t held_at = world.Tokens(before).size();
    EXPECT_LT(held_at, 20u);
    const RequestId during = world.Submit(request);
    world.Settle();
    EXPECT_EQ(world.Tokens(before).size(), held_at);
    // Only what runs holds pages.
    auto flushed = world.client_->FlushCache();
    world.Settle();
    EXPECT_EQ(flushed.get().ok(), mode == PauseMode::kRetract);
    EXPECT_TRUE(world.client_->Continue().valid());
    world.Settle();
    EXPECT_EQ(world.Tokens(before), Solo(request));
    EXPECT_EQ(world.Tokens(during), Solo(request));
    EXPECT_EQ(world.Last(before).retractions, mode == PauseMode::kRetract ? 1 : 0);
    world.ExpectAtRest();
  }
}

TEST(Engine, APauseMayAbortWhatRunsAndEndsWithTheProcess) {
  World world({});
  Rng rng(18);
  const Request request = MakeRequest(RandomPrompt(rng, 30), 20);
  const RequestId running = world.Submit(request);
  world.engine_->Turn();
  auto paused = world.client_->Pause(PauseMode::kAbort);
  world.Settle();
  EXPECT_TRUE(paused.get().ok());
  EXPECT_EQ(world.Last(running).status.code(), ErrorCode::kCancelled);
  const RequestId waiting = world.Submit(request);
  auto superseded = world.client_->Pause(PauseMode::kInPlace);
  auto continued = world.client_->Continue();
  auto again = world.client_->Pause(PauseMode::kInPlace);
  world.Settle();
  EXPECT_EQ(superseded.get().code(), ErrorCode::kCancelled);
  EXPECT_TRUE(continued.get().ok());
  EXPECT_TRUE(again.get().ok());
  world.engine_->Start();
  world.engine_->Stop(int64_t{1} << 50);
  world.Collect();
  EXPECT_EQ(world.Tokens(waiting), Solo(request));
  EXPECT_EQ(world.client_->Pause(PauseMode::kAbort).get().code(), ErrorCode::kUnavailable);
  world.ExpectAtRest();
}

TEST(Engine, ThousandsOfRandomSchedulesAnswerAsIfAloneAndLoseNoPage) {
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    Rng rng(seed);
    World world(testing::RandomWorld(rng));
    testing::LiveRandomly(world, rng);
    if (::testing::Test::HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace hayate::engine
