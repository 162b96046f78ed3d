#pragma once
// The whole engine over the simulator, on one thread and a virtual clock, for tests.

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/align.h"
#include "base/clock.h"
#include "base/rng.h"
#include "core/request.h"
#include "engine/client.h"
#include "engine/engine.h"
#include "engine/testing/simulated_executor.h"

namespace hayate::engine::testing {

inline constexpr int32_t kVocab = 50;
inline constexpr TokenId kStopToken = 7;

struct WorldOptions {
  int32_t page_tokens = 4;
  int32_t total_tokens = 400;
  int32_t max_context = 200;
  int32_t window = 0;  // > 0: a window group beside the full one
  int32_t max_queued = 1000;
  int32_t vocab_size = kVocab;
  size_t outbox_capacity = 100'000;
  sched::SchedulerOptions scheduler = {};
  kv::PrefixReuse reuse = kv::PrefixReuse::kOn;
  // Speculation, with scheduler.max_drafts > 0. What steps are known to take: where that does not
  // depend on their tokens, every draft is verified; so it is where nothing is known.
  std::vector<spec::StepCost::Point> step_cost = {{.tokens = 1, .ns = 1e6}};
  DraftSource draft_source = DraftSource::kNgram;
  float draft_quality = 0.5f;
  bool draft_confidences = false;  // each draft's quality is random, and the drafter says it
  double forced_accept_length = 0;
  std::function<void()> wake = [] {};                  // the outbox's
  std::vector<spec::StepCost::Point> step_times = {};  // what steps really take; or the executor's
  int64_t position_ns = 0;                             // SimulatedExecutor's
};

class World {
 public:
  explicit World(WorldOptions options) : options_(options), metrics_(registry_, "sim") {
    CacheLayout layout{.page_tokens = options.page_tokens};
    const int32_t pages = CeilDiv(options.total_tokens, options.page_tokens) + 1;
    layout.groups.push_back({.name = "full", .kind = CacheKind::kFull, .page_bytes = 1});
    if (options.window > 0) {
      layout.groups.push_back({.name = "window",
                               .kind = CacheKind::kWindow,
                               .window = options.window,
                               .page_bytes = 1});
    }
    const std::vector<int32_t> num_pages(layout.groups.size(), pages);
    options_.scheduler.max_context = options.max_context;
    options_.scheduler.prefix_reuse = options.reuse == kv::PrefixReuse::kOn;
    cache_ =
        kv::KvCaches::Create({layout, num_pages, options.reuse}, options.scheduler.num_dp_ranks)
            .value();
    pool_metrics_ = std::make_unique<PoolMetrics>(registry_, "sim", *cache_);
    scheduler_ = std::make_unique<sched::Scheduler>(options_.scheduler, *cache_, clock_);
    const int32_t max_drafts = options_.scheduler.max_drafts;
    if (max_drafts > 0) {
      std::optional<spec::StepCost> cost;
      if (!options.step_cost.empty() && options.forced_accept_length == 0) {
        cost.emplace(options.step_cost);
      }
      drafting_ = std::make_unique<Drafting>(
          DraftingOptions{.source = options.draft_source,
                          .max_drafts = max_drafts,
                          .max_step_drafts = options_.scheduler.max_step_drafts,
                          .max_prefill = options_.scheduler.chunked_prefill_size,
                          .forced_accept_length = options.forced_accept_length},
          std::move(cost), speculation_metrics_);
    }
    executor_ = std::make_unique<SimulatedExecutor>(
        SimulatedExecutor::Options{.layout = layout,
                                   .num_pages = num_pages,
                                   .max_slots = options_.scheduler.max_running,
                                   .num_dp_ranks = options_.scheduler.num_dp_ranks,
                                   .max_context = options.max_context,
                                   .vocab_size = options.vocab_size,
                                   .step_times = options.step_times,
                                   .position_ns = options.position_ns,
                                   .max_drafts = max_drafts,
                                   .draft_quality = options.draft_quality,
                                   .draft_confidences = options.draft_confidences},
        clock_);
    engine_ = std::make_unique<Engine>(Engine::Parts{.scheduler = scheduler_.get(),
                                                     .cache = cache_.get(),
                                                     .executor = executor_.get(),
                                                     .inbox = &inbox_,
                                                     .outboxes = {&outbox_},
                                                     .clock = &clock_,
                                                     .metrics = &metrics_,
                                                     .step_log = &step_log_,
                                                     .drafting = drafting_.get(),
                                                     .pools = pool_metrics_.get(),
                                                     .max_queued = options.max_queued});
    client_ = std::make_unique<Client>(inbox_, *engine_);
  }

  // Runs until nothing moves.
  void Settle() {
    for (int turn = 0; turn < 100'000; ++turn) {
      const bool moved = engine_->Turn();
      Collect();
      if (!moved) return;
    }
    FAIL() << "the engine does not come to rest";
  }
  void Collect() {
    outbox_.Drain(drained_);
    for (TokenEvent& event : drained_) {
      auto& all = events_[event.id];
      if (!all.empty()) {
        EXPECT_FALSE(all.back().finish) << "an event after the last";
      }
      all.push_back(std::move(event));
    }
  }

  RequestId Submit(Request request) {
    request.id = client_->NewId();
    const RequestId id = request.id;
    EXPECT_TRUE(client_->Submit(std::move(request)).ok());
    return id;
  }
  std::vector<TokenId> Tokens(RequestId id) const {
    std::vector<TokenId> tokens;
    for (const TokenEvent& event : events_.at(id)) {
      tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
    }
    return tokens;
  }
  const TokenEvent& Last(RequestId id) const { return events_.at(id).back(); }
  // Nothing runs, every page is free or cached, and the books add up.
  void ExpectAtRest() {
    const Status integrity = cache_->CheckIntegrity();
    EXPECT_TRUE(integrity.ok()) << integrity.ToString();
    EXPECT_TRUE(scheduler_->idle());
    for (int group = 0; group < cache_->num_groups(); ++group) {
      const kv::PageCounts counts = cache_->counts(group);
      EXPECT_EQ(counts.sequences, 0);
      EXPECT_EQ(counts.deferred, 0);
      EXPECT_EQ(counts.free + counts.evictable, counts.usable);
    }
  }

  WorldOptions options_;
  VirtualClock clock_;
  obs::Registry registry_;
  EngineMetrics metrics_;
  SpeculationMetrics speculation_metrics_{registry_, "sim"};
  std::unique_ptr<Drafting> drafting_;
  obs::StepLog step_log_{64};
  Inbox inbox_{1000};
  Outbox outbox_{options_.outbox_capacity, options_.wake};
  std::unique_ptr<kv::KvCaches> cache_;
  std::unique_ptr<PoolMetrics> pool_metrics_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::unique_ptr<SimulatedExecutor> executor_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Client> client_;
  std::map<RequestId, std::vector<TokenEvent>> events_;
  std::vector<TokenEvent> drained_;
};

inline Request MakeRequest(std::vector<TokenId> prompt, int32_t max_new_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0.0f;
  request.sampling.max_new_tokens = max_new_tokens;
  request.sampling.stop_token_ids = {kStopToken};
  return request;
}

// The same request run alone, by the definition.
inline std::vector<TokenId> Solo(const Request& request) {
  std::vector<TokenId> context = request.prompt;
  std::vector<TokenId> output;
  while (static_cast<int32_t>(output.size()) < request.sampling.max_new_tokens) {
    output.push_back(SimulatedNextToken(context, kVocab));
    context.push_back(output.back());
    if (!request.sampling.ignore_eos && output.back() == kStopToken) break;
  }
  return output;
}

inline std::vector<TokenId> RandomPrompt(Rng& rng, int32_t length) {
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < length; ++i) prompt.push_back(static_cast<TokenId>(rng.Below(kVocab)));
  return prompt;
}

}  // namespace hayate::engine::testing
