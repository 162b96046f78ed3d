// Prompts that arrive while answers are under way, through the whole engine over the simulator: how
// long answers wait for a token, and prompts for their first.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

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
  // 8 answers and 32 prompt tokens at most: twice a step without prompts.
  EXPECT_LE(loop.longest_gap_ns, 8 * kMs);
  // All other clients' prompts first, at 16 tokens a step or more.
  EXPECT_LE(loop.longest_first_ns, 8 * 100 / 16 * 7 * kMs);
}

TEST(MixedSteps, WithoutABoundAWholePromptHoldsAnswersUp) {
  ClosedLoop loop(Device(), {});
  loop.Run();
  EXPECT_GE(loop.longest_gap_ns, 20 * kMs);
}

}  // namespace
}  // namespace hayate::engine
