// Prompts that arrive while answers are under way, through the whole engine over the simulator: how
// long answers wait for a token, and prompts for their first.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "engine/testing/world.h"

namespace hayate::engine {
namespace {

using testing::World;
using testing::WorldOptions;

constexpr int64_t kMs = 1'000'000;

struct Load {
  int32_t clients = 8;
  int32_t requests = 48;
  int32_t prompt = 100;
  int32_t answer = 30;
};

// Every client sends its next request when the last one is answered.
class ClosedLoop {
 public:
  ClosedLoop(const WorldOptions& options, const Load& load) : world_(options), load_(load) {}

  void Run() {
    for (int32_t i = 0; i < load_.clients; ++i) Send();
    for (int turn = 0; turn < 100'000 && num_answered_ < load_.requests; ++turn) {
      world_.engine_->Turn();
      world_.Collect();
      const int64_t now = world_.clock_.NowNs();
      std::vector<RequestId> answered;
      for (auto& [id, flight] : flights_) {
        if (Took(id, now, flight)) answered.push_back(id);
      }
      for (const RequestId id : answered) Answered(id);
    }
    EXPECT_EQ(num_answered_, load_.requests);
    world_.Settle();
    world_.ExpectAtRest();
  }

  int64_t longest_gap_ns = 0;
  int64_t longest_first_ns = 0;

 private:
  struct Flight {
    Request request;
    int64_t sent_ns = 0, last_ns = 0;
    size_t num_events = 0;
  };

  void Send() {
    if (num_sent_ == load_.requests) return;
    ++num_sent_;
    Request request = testing::MakeRequest(testing::RandomPrompt(rng_, load_.prompt), load_.answer);
    request.sampling.ignore_eos = true;
    const RequestId id = world_.Submit(request);
    flights_[id] = {.request = request, .sent_ns = world_.clock_.NowNs()};
  }

  // The new events of a request are in; true when it has its last.
  bool Took(RequestId id, int64_t now, Flight& flight) {
    const auto events = world_.events_.find(id);
    if (events == world_.events_.end() || events->second.size() == flight.num_events) return false;
    if (flight.num_events == 0) {
      longest_first_ns = std::max(longest_first_ns, now - flight.sent_ns);
    } else {
      longest_gap_ns = std::max(longest_gap_ns, now - flight.last_ns);
    }
    flight.num_events = events->second.size();
    flight.last_ns = now;
    return events->second.back().finish.has_value();
  }

  void Answered(RequestId id) {
    EXPECT_EQ(world_.Tokens(id), testing::Solo(flights_.at(id).request));
    flights_.erase(id);
    ++num_answered_;
    Send();
  }

  World world_;
  const Load load_;
  Rng rng_{5};
  std::map<RequestId, Flight> flights_;
  int32_t num_sent_ = 0, num_answered_ = 0;
};

// 4 ms up to 20 tokens, as long as weights take to be read, then 0.2 ms a token.
WorldOptions Device() {
  WorldOptions options;
  options.total_tokens = 1600;
  options.scheduler.max_running = 8;
  options.scheduler.chunked_prefill_size = 128;
  options.step_times = {{.tokens = 1, .ns = 4.0 * kMs},
                        {.tokens = 20, .ns = 4.0 * kMs},
                        {.tokens = 220, .ns = 44.0 * kMs}};
  return options;
}

TEST(MixedSteps, AnswersGoOnWhilePromptsAreComputedAndNoPromptIsForgotten) {
  WorldOptions options = Device();
  options.scheduler.mixed_chunk_size = 16;
  options.scheduler.mixed_step_multiple = 8;
  ClosedLoop loop(options, {});
  loop.Run();
  // Answers and prompt tokens are three tiles of 8 at most.
  EXPECT_LE(loop.longest_gap_ns, 5 * kMs);
  // All other clients' prompts first, at 12 tokens a step or more.
  EXPECT_LE(loop.longest_first_ns, 8 * 100 / 12 * 5 * kMs);
}

// Answers under way, beside which prompts of 400 arrive one after the other.
struct Arrivals {
  int32_t num_gaps = 0, num_long_gaps = 0;  // between two tokens of the answers; over 8.5 ms
  int64_t longest_first_ns = 0;             // of the prompts
};

Arrivals RunArrivals(const WorldOptions& options, int32_t num_prompts) {
  World world(options);
  Rng rng(7);
  std::vector<RequestId> answers;
  for (int i = 0; i < 7; ++i) {
    Request request = testing::MakeRequest(testing::RandomPrompt(rng, 4), 300);
    request.sampling.ignore_eos = true;
    answers.push_back(world.Submit(request));
  }
  Arrivals seen;
  size_t num_tokens = 0;
  int64_t last_ns = 0, sent_ns = 0;
  std::optional<RequestId> prompt;
  const auto turn = [&] {
    world.engine_->Turn();
    world.Collect();
    const size_t now_tokens = world.Tokens(answers.front()).size();
    const int64_t now = world.clock_.NowNs();
    if (now_tokens == num_tokens) return;
    num_tokens = now_tokens;
    if (last_ns > 0) {
      ++seen.num_gaps;
      seen.num_long_gaps += now - last_ns > 8 * kMs + kMs / 2;
    }
    last_ns = now;
  };
  const auto begun = [&] {
    return std::ranges::all_of(answers, [&](RequestId id) { return world.events_.contains(id); });
  };
  while (!begun()) {
    world.engine_->Turn();
    world.Collect();
  }
  for (int i = 0; i < num_prompts; ++i) {
    for (int step = 0; step < 5; ++step) turn();
    sent_ns = world.clock_.NowNs();
    prompt = world.Submit(testing::MakeRequest(testing::RandomPrompt(rng, 400), 1));
    while (!world.events_.contains(*prompt)) turn();
    seen.longest_first_ns = std::max(seen.longest_first_ns, world.clock_.NowNs() - sent_ns);
  }
  world.Settle();
  world.ExpectAtRest();
  return seen;
}

WorldOptions DeviceForArrivals() {
  WorldOptions options = Device();
  options.total_tokens = 4000;
  options.max_context = 500;
  options.scheduler.mixed_chunk_size = 48;
  options.scheduler.mixed_step_multiple = 4;
  return options;
}

TEST(MixedSteps, LongPromptsBesideAnswersComeInStepsOfTwiceTheTime) {
  const Arrivals seen = RunArrivals(DeviceForArrivals(), 4);
  // 48 prompt tokens and one an answer would take 11 ms. So does the first step with prompts:
  // nothing is known of them.
  EXPECT_GT(seen.num_gaps, 60);
  EXPECT_LE(seen.num_long_gaps, 2);
  // 40 tokens take 8 ms; of the 33 beside the answers most are used.
  EXPECT_LE(seen.longest_first_ns, 400 / 24 * 8 * kMs);
}

TEST(MixedSteps, PromptsWhoseAttentionGrowsComeInStepsOfTwiceTheTime) {
  WorldOptions options = DeviceForArrivals();
  options.position_ns = 5'000;  // the last tokens of a prompt take half of what doubles a step
  const Arrivals seen = RunArrivals(options, 6);
  EXPECT_GT(seen.num_gaps, 100);
  EXPECT_LE(seen.num_long_gaps, 2);  // as above
  EXPECT_LE(seen.longest_first_ns, 400 / 18 * 8 * kMs);
}

TEST(MixedSteps, WithoutABoundAWholePromptHoldsAnswersUp) {
  ClosedLoop loop(Device(), {});
  loop.Run();
  EXPECT_GE(loop.longest_gap_ns, 20 * kMs);
}

}  // namespace
}  // namespace hayate::engine
