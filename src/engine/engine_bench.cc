// Host cost of a step: one Turn() at 256 running sequences that decode, over an executor that costs
// nothing, with 1,000 and 100,000 pages in the prefix cache.

#include <benchmark/benchmark.h>

#include <array>
#include <memory>

#include "base/rng.h"
#include "engine/client.h"
#include "engine/engine.h"

namespace hayate::engine {
namespace {

constexpr int32_t kPageTokens = 16;
constexpr int32_t kRunning = 256;
constexpr int32_t kMaxContext = 1 << 20;
constexpr int32_t kVocab = 50'000;
constexpr int32_t kCachedPrompt = 8'000;  // tokens of the prompts that fill the cache

class NullExecutor final : public StepExecutor {
 public:
  void Submit(const StepPlan& plan) override {
    StepResult& result = results_[num_submitted_++ % results_.size()];
    result.step = plan.step;
    result.rows.resize(plan.rows.size());
    for (size_t i = 0; i < plan.rows.size(); ++i) {
      result.rows[i].Reset(plan.rows[i].slot);
      if (plan.rows[i].samples) result.rows[i].tokens.push_back(static_cast<TokenId>(i));
    }
  }
  StepResult& WaitOldest() override { return results_[num_taken_++ % results_.size()]; }

 private:
  std::array<StepResult, kMaxInFlight> results_;
  size_t num_submitted_ = 0;
  size_t num_taken_ = 0;
};

Request RandomRequest(Rng& rng, Client& client, int32_t prompt_tokens, int32_t new_tokens) {
  Request request;
  request.id = client.NewId();
  for (int32_t i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back(static_cast<TokenId>(rng.Below(kVocab)));
  }
  request.sampling.max_new_tokens = new_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

void BM_DecodeTurn(benchmark::State& state) {
  const int64_t cached_pages = state.range(0);
  CacheLayout layout{.page_tokens = kPageTokens};
  layout.groups.push_back({.name = "kv", .kind = CacheKind::kFull, .page_bytes = 1});
  const int32_t pool_pages = static_cast<int32_t>(cached_pages) + (1 << 18);
  const auto cache = kv::KvCaches::Create({layout, {pool_pages}}).value();
  SteadyClock clock;
  obs::Registry registry;
  EngineMetrics metrics(registry, "bench");
  obs::StepLog step_log(64);
  Inbox inbox(kRunning);
  Outbox outbox(1 << 20, [] {});
  NullExecutor executor;
  sched::Scheduler scheduler(
      {.max_running = kRunning, .chunked_prefill_size = 1 << 15, .max_context = kMaxContext},
      *cache, clock);
  Engine engine({.scheduler = &scheduler,
                 .cache = cache.get(),
                 .executor = &executor,
                 .inbox = &inbox,
                 .outboxes = {&outbox},
                 .clock = &clock,
                 .metrics = &metrics,
                 .step_log = &step_log,
                 .max_queued = kRunning});
  Client client(inbox, engine);
  std::vector<TokenEvent> events;
  Rng rng(1);
  for (int64_t pages = 0; pages < cached_pages; pages += kCachedPrompt / kPageTokens) {
    if (!client.Submit(RandomRequest(rng, client, kCachedPrompt, 1)).ok()) std::abort();
    while (engine.Turn()) outbox.Drain(events);
  }
  for (int32_t i = 0; i < kRunning; ++i) {
    if (!client.Submit(RandomRequest(rng, client, 100, 1 << 19)).ok()) std::abort();
  }
  for (int i = 0; i < 100; ++i) engine.Turn();
  outbox.Drain(events);

  for (auto _ : state) {
    engine.Turn();
    state.PauseTiming();
    outbox.Drain(events);
    state.ResumeTiming();
  }
  state.counters["running"] = engine.load().num_running;
}
BENCHMARK(BM_DecodeTurn)
    ->Arg(1'000)
    ->Arg(100'000)
    ->Iterations(2'000)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace hayate::engine
