// Updates of the weights between steps, over the simulator.

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <vector>

#include "engine/testing/world.h"

namespace hayate::engine {
namespace {

using testing::MakeRequest;
using testing::RandomPrompt;
using testing::Solo;
using testing::World;

// Of answers that run on to their limit.
Request LongAnswer(Rng& rng, int32_t max_new_tokens) {
  Request request = MakeRequest(RandomPrompt(rng, 20), max_new_tokens);
  request.sampling.ignore_eos = true;
  return request;
}

Status Outcome(std::future<Status>& done) {
  EXPECT_EQ(done.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  return done.get();
}

TEST(WeightUpdate, WaitsForWhatHasBegunAndHoldsTheRest) {
  World world({.scheduler = {.max_running = 2}});
  Rng rng(1);
  const Request first = LongAnswer(rng, 30);
  const RequestId a = world.Submit(first);
  const RequestId b = world.Submit(LongAnswer(rng, 10));
  const RequestId c = world.Submit(LongAnswer(rng, 5));
  for (int turn = 0; turn < 4; ++turn) world.engine_->Turn();
  int applied = 0;
  auto done = world.client_->UpdateWeights({.apply = [&] {
    world.Collect();
    ++applied;
    EXPECT_TRUE(world.Last(a).finish && world.Last(b).finish);
    EXPECT_FALSE(world.events_.contains(c)) << "it began with the old weights";
    EXPECT_EQ(world.scheduler_->stats().num_waiting, 1);
    return OkStatus();
  }});
  world.Settle();
  EXPECT_EQ(applied, 1);
  EXPECT_TRUE(Outcome(done).ok());
  EXPECT_EQ(world.Tokens(a), Solo(first));
  EXPECT_EQ(world.Tokens(c).size(), 5u);
  // The old weights' prefixes are forgotten.
  const RequestId again = world.Submit(first);
  world.Settle();
  EXPECT_EQ(world.Last(again).cached_tokens, 0);
  world.ExpectAtRest();
}

TEST(WeightUpdate, ThatFailsChangesNothing) {
  World world({});
  Rng rng(2);
  const Request request = LongAnswer(rng, 5);
  world.Submit(request);
  world.Settle();
  auto done = world.client_->UpdateWeights(
      {.apply = [] { return Status(ErrorCode::kDataLoss, "a tensor is missing"); }});
  world.Settle();
  EXPECT_EQ(Outcome(done).code(), ErrorCode::kDataLoss);
  const RequestId again = world.Submit(request);
  world.Settle();
  EXPECT_GT(world.Last(again).cached_tokens, 0) << "the cache is the old weights' still";
  EXPECT_EQ(world.Tokens(again), Solo(request));
  world.ExpectAtRest();
}

TEST(WeightUpdate, MayEndWhatRuns) {
  World world({});
  Rng rng(3);
  const RequestId id = world.Submit(LongAnswer(rng, 100));
  for (int turn = 0; turn < 6; ++turn) world.engine_->Turn();
  auto done = world.client_->UpdateWeights({.apply = [] { return OkStatus(); }, .abort_all = true});
  world.Settle();
  EXPECT_TRUE(Outcome(done).ok());
  EXPECT_EQ(world.Last(id).status.code(), ErrorCode::kCancelled);
  EXPECT_LT(world.Tokens(id).size(), 100u);
  world.ExpectAtRest();
}

TEST(WeightUpdate, UnderAPauseTakesEffectAtOnce) {
  World world({});
  Rng rng(4);
  const Request request = LongAnswer(rng, 40);
  const RequestId id = world.Submit(request);
  for (int turn = 0; turn < 6; ++turn) world.engine_->Turn();
  auto paused = world.client_->Pause(PauseMode::kInPlace);
  world.Settle();
  EXPECT_TRUE(Outcome(paused).ok());
  int applied = 0;
  const auto apply = [&] {
    ++applied;
    return OkStatus();
  };
  // What is paused in place keeps its pages, so the cache cannot be forgotten.
  auto flushing = world.client_->UpdateWeights({.apply = apply});
  world.Settle();
  EXPECT_EQ(Outcome(flushing).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(applied, 0);
  auto keeping = world.client_->UpdateWeights({.apply = apply, .flush_cache = false});
  world.Settle();
  EXPECT_TRUE(Outcome(keeping).ok());
  EXPECT_EQ(applied, 1);
  EXPECT_FALSE(world.Last(id).finish);
  auto retracted = world.client_->Pause(PauseMode::kRetract);
  auto again = world.client_->UpdateWeights({.apply = apply});
  world.Settle();
  EXPECT_TRUE(Outcome(retracted).ok());
  EXPECT_TRUE(Outcome(again).ok());
  EXPECT_EQ(applied, 2);
  auto continued = world.client_->Continue();
  world.Settle();
  EXPECT_TRUE(Outcome(continued).ok());
  EXPECT_EQ(world.Tokens(id), Solo(request));
  world.ExpectAtRest();
}

TEST(WeightUpdate, IsRefusedBesideAnotherAndWhenTheProcessStops) {
  // Far from done when the engine's thread has run for a moment.
  constexpr int32_t kTokens = 1 << 20;
  World world({.total_tokens = 2 * kTokens, .max_context = 2 * kTokens});
  Rng rng(5);
  world.Submit(LongAnswer(rng, kTokens));
  for (int turn = 0; turn < 4; ++turn) world.engine_->Turn();
  int applied = 0;
  const auto apply = [&] {
    ++applied;
    return OkStatus();
  };
  auto first = world.client_->UpdateWeights({.apply = apply});
  world.engine_->Turn();
  auto second = world.client_->UpdateWeights({.apply = apply});
  world.engine_->Turn();
  EXPECT_EQ(Outcome(second).code(), ErrorCode::kUnavailable);
  world.engine_->Start();
  world.engine_->Stop(0);
  EXPECT_EQ(first.get().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(world.client_->UpdateWeights({.apply = apply}).get().code(), ErrorCode::kUnavailable);
  EXPECT_EQ(applied, 0);
}

// A request that lost its slot has begun: it finishes before the weights change.
TEST(WeightUpdate, WaitsForTheRetractedToo) {
  World world({.scheduler = {.max_running = 2}});
  Rng rng(6);
  std::vector<Request> requests;
  std::vector<RequestId> ids;
  for (int i = 0; i < 3; ++i) {
    requests.push_back(LongAnswer(rng, 40));
    ids.push_back(world.Submit(requests.back()));
  }
  for (int turn = 0; turn < 6; ++turn) world.engine_->Turn();
  auto paused = world.client_->Pause(PauseMode::kRetract);
  world.Settle();
  EXPECT_TRUE(Outcome(paused).ok());
  EXPECT_EQ(world.scheduler_->stats().num_waiting, 3);
  auto continued = world.client_->Continue();
  int applied = 0;
  auto done = world.client_->UpdateWeights({.apply = [&] {
    ++applied;
    world.Collect();
    EXPECT_TRUE(world.Last(ids[0]).finish && world.Last(ids[1]).finish);
    EXPECT_FALSE(world.events_.contains(ids[2]));
    return OkStatus();
  }});
  world.Settle();
  EXPECT_TRUE(Outcome(continued).ok());
  EXPECT_TRUE(Outcome(done).ok());
  EXPECT_EQ(applied, 1);
  for (size_t i = 0; i < ids.size(); ++i) EXPECT_EQ(world.Tokens(ids[i]), Solo(requests[i]));
  world.ExpectAtRest();
}

}  // namespace
}  // namespace hayate::engine
