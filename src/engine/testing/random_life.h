#pragma once
// Random requests, cancels and pauses over a random small world, for tests.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "base/rng.h"
#include "engine/testing/world.h"

namespace hayate::engine::testing {

// Few pages, small chunks, any policy; sometimes a window, dp ranks, no prefix cache.
inline WorldOptions RandomWorld(Rng& rng) {
  WorldOptions options;
  options.page_tokens = 1 << rng.Below(4);
  options.max_context = rng.Between(40, 120);
  options.total_tokens = options.max_context + options.page_tokens * rng.Between(1, 60);
  options.window = rng.Below(3) == 0 ? rng.Between(1, 40) : 0;
  options.reuse = rng.Below(8) == 0 ? kv::PrefixReuse::kOff : kv::PrefixReuse::kOn;
  sched::SchedulerOptions& scheduler = options.scheduler;
  scheduler.max_running = rng.Between(1, 12);
  scheduler.chunked_prefill_size = rng.Between(1, 64);
  scheduler.max_scored_tokens = rng.Between(1, 8);
  scheduler.policy = static_cast<sched::Policy>(rng.Below(3));
  if (rng.Below(3) == 0) {
    scheduler.num_dp_ranks = rng.Between(1, std::min(3, scheduler.max_running));
  }
  return options;
}

class RandomLife {
 public:
  RandomLife(World& world, Rng& rng)
      : world_(world), rng_(rng), shared_(RandomPrompt(rng, world.options_.max_context)) {}

  void Event() {
    const uint32_t dice = rng_.Below(10);
    if (dice < 4) {
      Submit();
    } else if (dice == 4 && !submitted_.empty()) {
      End();
    } else if (dice == 5 && rng_.Below(2) == 0) {
      PauseOrContinue();
    } else {
      Turns();
    }
  }

  void ExpectAnswers() {
    for (const auto& [id, request] : submitted_) {
      ASSERT_TRUE(world_.events_.contains(id));
      ASSERT_TRUE(world_.Last(id).finish);
      const std::vector<TokenId> got = world_.Tokens(id);
      std::vector<TokenId> expected = Solo(request);
      if (ended_.contains(id)) {
        ASSERT_LE(got.size(), expected.size());
        expected.resize(got.size());
      } else {
        ASSERT_NE(world_.Last(id).finish, FinishReason::kAbort)
            << world_.Last(id).status.ToString();
      }
      ASSERT_EQ(got, expected) << "request " << id;
    }
  }

 private:
  void Submit() {
    const int32_t max_context = world_.options_.max_context;
    const int32_t length = rng_.Between(1, max_context - 2);
    std::vector<TokenId> prompt = RandomPrompt(rng_, length);
    std::copy_n(shared_.begin(), rng_.Between(0, length), prompt.begin());
    Request request = MakeRequest(prompt, rng_.Between(0, max_context - length));
    request.priority = rng_.Between(0, 3) * 10;
    request.sampling.ignore_eos = rng_.Below(2) == 0;
    if (rng_.Below(6) == 0) request.logprobs = {true, 0, rng_.Between(0, length - 1)};
    submitted_.emplace(world_.Submit(request), request);
  }

  // The client hangs up, or has found what it waited for.
  void End() {
    auto it = submitted_.begin();
    std::advance(it, rng_.Below(static_cast<uint32_t>(submitted_.size())));
    if (rng_.Below(2) == 0) {
      world_.client_->Cancel(it->first);
    } else {
      world_.client_->Complete(it->first);
    }
    ended_.insert(it->first);
  }

  void PauseOrContinue() {
    if (rng_.Below(2) == 0) {
      world_.client_->Pause(rng_.Below(2) == 0 ? PauseMode::kRetract : PauseMode::kInPlace);
    } else {
      world_.client_->Continue();
    }
  }

  void Turns() {
    for (uint32_t turns = rng_.Below(8); turns > 0; --turns) {
      world_.engine_->Turn();
      world_.Collect();
      const Status integrity = world_.cache_->CheckIntegrity();
      ASSERT_TRUE(integrity.ok()) << integrity.ToString();
    }
  }

  World& world_;
  Rng& rng_;
  const std::vector<TokenId> shared_;  // what prompts begin with
  std::map<RequestId, Request> submitted_;
  std::set<RequestId> ended_;
};

// Lives until nothing moves. Every answer must be the one that its request gets alone, or the
// beginning of it where the request was ended; the books must add up after every turn, and nothing
// may be held at the end.
inline void LiveRandomly(World& world, Rng& rng) {
  RandomLife life(world, rng);
  const int num_events = rng.Between(5, 60);
  for (int i = 0; i < num_events && !::testing::Test::HasFatalFailure(); ++i) life.Event();
  world.client_->Continue();
  world.Settle();
  world.ExpectAtRest();
  life.ExpectAnswers();
}

}  // namespace hayate::engine::testing
