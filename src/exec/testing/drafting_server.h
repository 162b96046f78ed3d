#pragma once
// A tiny checkpoint served with drafts by the scheduler, one step in flight, on any device and any
// layout of ranks: what the engine does of a step, in the small, for tests that compare answers
// with and without drafts.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/align.h"
#include "base/clock.h"
#include "base/rng.h"
#include "exec/local_executor.h"
#include "exec/testing/accept_server.h"
#include "exec/testing/layout.h"
#include "kv/kv_caches.h"
#include "sched/scheduler.h"

namespace hayate::exec::testing {

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;
  int32_t num_drafts = 0, num_accepted = 0;
};
using Answers = std::vector<Answer>;

inline int32_t NumDrafts(const Answers& answers) {
  int32_t count = 0;
  for (const Answer& answer : answers) count += answer.num_drafts;
  return count;
}
inline int32_t NumAccepted(const Answers& answers) {
  int32_t count = 0;
  for (const Answer& answer : answers) count += answer.num_accepted;
  return count;
}

struct DraftingOptions {
  AcceptCase tested;  // its drafter runs where own_drafter says so
  Layout layout = {};
  int32_t max_drafts = 4;
  bool own_drafter = false;
};

// Where drafts come from.
struct DraftSource {
  // Guesses of the plain answers' next tokens; null: the drafter's own.
  const Answers* plain = nullptr;
  // Of each row so many right ones, then wrong ones.
  std::optional<int32_t> num_right = {};
  // Or a random number of drafts, each right with this chance.
  float quality = 0.0f;
};

class DraftingServer {
 public:
  static constexpr int32_t kPageTokens = 16;
  static constexpr int32_t kContext = 128;
  static constexpr int32_t kMaxRunning = 5;

  explicit DraftingServer(const DraftingOptions& options)
      : options_(options),
        checkpoint_(
            weights::Checkpoint::Open("tests/golden/" + options.tested.checkpoint).value()) {
    if (!options.tested.head.empty()) {
      head_.emplace(weights::Checkpoint::Open("tests/golden/" + options.tested.head).value());
    }
    auto executor = LocalExecutor::Create(checkpoint_, MakeOptions());
    CHECK(executor.ok()) << executor.status().ToString();
    executor_ = std::move(executor).value();
    const int dp_size = options.layout.dp_size;
    cache_ =
        kv::KvCaches::Create(
            {.layout = executor_->cache_layout(), .num_pages = executor_->pool_pages()}, dp_size)
            .value();
    scheduler_.emplace(sched::SchedulerOptions{.max_running = kMaxRunning,
                                               .num_dp_ranks = dp_size,
                                               .chunked_prefill_size = 24,
                                               .max_context = kContext,
                                               .max_drafts = options.max_drafts,
                                               .max_step_drafts = kMaxRunning * options.max_drafts,
                                               .draft_lookahead = executor_->draft_lookahead()},
                       *cache_, clock_);
  }

  Answers Run(const std::vector<Request>& requests, const DraftSource& source = {}) {
    source_ = source;
    answers_.assign(requests.size(), {});
    proposed_.clear();
    guesses_.clear();
    for (const Request& request : requests) {
      EXPECT_TRUE(scheduler_->Validate(request).ok());
      scheduler_->Add(request);
    }
    StepPlan plan;
    for (int turn = 1; !scheduler_->idle(); ++turn) {
      if (turn % 25 == 0) scheduler_->RetractAll();
      Draft();
      if (!scheduler_->Plan(plan)) continue;
      executor_->Submit(plan);
      scheduler_->Submitted(plan);
      StepResult& result = executor_->WaitOldest();
      CHECK(result.status.ok()) << result.status.ToString();
      scheduler_->Retired(result.step);
      for (size_t i = 0; i < plan.rows.size(); ++i) Commit(plan.rows[i], result.rows[i]);
      const Status integrity = cache_->CheckIntegrity();
      EXPECT_TRUE(integrity.ok()) << integrity.ToString();
    }
    return answers_;
  }
  // By request and how many tokens it had generated.
  using Guesses = std::map<std::pair<RequestId, int32_t>, std::vector<TokenId>>;
  const Guesses& guesses() const { return guesses_; }
  int64_t num_retractions() const {
    return static_cast<int64_t>(scheduler_->stats().num_retractions);
  }
  // Rows that verified drafts, of a dp rank.
  int64_t num_verified(int dp_rank) const { return num_verified_[static_cast<size_t>(dp_rank)]; }

 private:
  ExecutorOptions MakeOptions() const {
    const Layout& layout = options_.layout;
    const int32_t experts = models::ReadExpertShape(checkpoint_).value().num_experts;
    const int32_t most = kMaxRunning * (options_.max_drafts + 1);
    return {.device = layout.device,
            .num_ranks = layout.num_ranks,
            .gpu_step = CountCudaDevices() < layout.num_ranks ? 0 : 1,
            .dp_size = layout.dp_size,
            .ep_size = layout.ep_size,
            .expert_plan = {.num_redundant = AlignUp(experts, layout.num_ranks) - experts},
            .memory_fraction = 0.1,
            .max_graph_rows = 4,
            .precision = ops::MatmulPrecision::kExact,
            .kv_dtype = DType::kF32,
            .page_tokens = kPageTokens,
            .max_running = kMaxRunning,
            .max_drafts = options_.max_drafts,
            .draft = options_.own_drafter ? options_.tested.draft : models::DraftKind::kNone,
            .draft_checkpoint = head_ ? &*head_ : nullptr,
            .max_step_tokens = 24 + most,
            .max_step_logits = 16 + most,
            .total_tokens = 2 * kContext * layout.dp_size};
  }

  void Draft() {
    for (sched::Sequence* sequence : scheduler_->running()) {
      sequence->drafts.clear();
      if (!sequence->decodes_known() || !TakesDrafts(sequence->request)) continue;
      const RequestId id = sequence->request.id;
      if (source_.plain == nullptr) {
        sequence->drafts = proposed_[id];
        continue;
      }
      const auto count =
          source_.num_right ? options_.max_drafts : rng_.Between(0, options_.max_drafts);
      const std::vector<TokenId>& plain = (*source_.plain)[id.value].tokens;
      for (int32_t i = 0; i < count; ++i) {
        const auto at = static_cast<size_t>(sequence->num_generated() + i);
        if (at >= plain.size()) break;
        const bool right =
            source_.num_right ? i < *source_.num_right : rng_.NextFloat() < source_.quality;
        sequence->drafts.push_back(right ? plain[at] : (plain[at] + 1 + i) % 200);
      }
    }
  }
  // The draws of a GPU count no tokens along a row.
  bool TakesDrafts(const Request& request) const {
    return options_.layout.device == DeviceKind::kCpu || !request.sampling.has_penalties();
  }

  void Commit(const StepRow& row, RowResult& result) {
    sched::Sequence& sequence = *scheduler_->InSlot(row.slot);
    const RequestId id = sequence.request.id;
    Answer& answer = answers_[id.value];
    if (row.num_drafts > 0) {
      const auto count = static_cast<int32_t>(result.tokens.size());
      scheduler_->Verified(sequence, row, count);
      ++num_verified_[static_cast<size_t>(row.slot.value % options_.layout.dp_size)];
      if (source_.num_right) {
        EXPECT_EQ(count, std::min(*source_.num_right, row.num_drafts) + 1);
      }
    }
    answer.num_drafts = sequence.num_drafts;
    answer.num_accepted = sequence.num_accepted_drafts;
    const SamplingParams& sampling = sequence.request.sampling;
    for (size_t i = 0; i < result.tokens.size(); ++i) {
      const TokenId token = result.tokens[i];
      scheduler_->Append(sequence, token);
      answer.tokens.push_back(token);
      if (i < result.logprobs.size()) answer.logprobs.push_back(result.logprobs[i]);
      const bool stops = token == sampling.stop_token_ids[0] &&
                         sequence.num_generated() >= sampling.min_new_tokens;
      if (stops || sequence.num_generated() == sampling.max_new_tokens) {
        scheduler_->Finish(sequence, sched::FinishMode::kPublish);
        return;
      }
    }
    proposed_[id] = result.drafts;
    if (!result.drafts.empty()) guesses_[{id, sequence.num_generated()}] = result.drafts;
  }

  const DraftingOptions options_;
  const weights::Checkpoint checkpoint_;
  std::optional<weights::Checkpoint> head_;
  VirtualClock clock_;
  Rng rng_{3};
  std::unique_ptr<LocalExecutor> executor_;
  std::unique_ptr<kv::KvCaches> cache_;
  std::optional<sched::Scheduler> scheduler_;
  DraftSource source_;
  Answers answers_;
  std::map<RequestId, std::vector<TokenId>> proposed_;
  Guesses guesses_;
  std::vector<int64_t> num_verified_ = std::vector<int64_t>(kMaxRunning);  // [dp ranks]
};

// With every sampler, prefixes in common, stop tokens and log-probabilities.
inline std::vector<Request> MixedRequests(int count) {
  Rng rng(9);
  std::vector<TokenId> shared;
  for (int i = 0; i < 40; ++i) shared.push_back(static_cast<TokenId>(rng.Below(200)));
  std::vector<Request> requests;
  for (int i = 0; i < count; ++i) {
    Request request;
    request.id = {static_cast<uint64_t>(i)};
    request.prompt.assign(shared.begin(), shared.begin() + rng.Between(1, 40));
    for (int extra = rng.Between(0, 30); extra > 0; --extra) {
      request.prompt.push_back(static_cast<TokenId>(rng.Below(200)));
    }
    SamplingParams& sampling = request.sampling;
    sampling.temperature = rng.Below(2) == 0 ? 0.0f : 0.5f + rng.NextFloat();
    if (rng.Below(3) == 0) sampling.top_k = rng.Between(2, 30);
    if (rng.Below(3) == 0) sampling.top_p = 0.6f;
    if (rng.Below(3) == 0) sampling.min_p = 0.1f;
    if (rng.Below(3) == 0) sampling.frequency_penalty = 1.5f;
    if (rng.Below(3) == 0) sampling.repetition_penalty = 1.3f;
    if (rng.Below(4) == 0) sampling.logit_bias = {{5, 3.0f}, {17, -4.0f}};
    sampling.seed = static_cast<uint64_t>(100 + i);
    sampling.max_new_tokens = rng.Between(1, 50);
    sampling.min_new_tokens = rng.Between(0, 8);
    sampling.stop_token_ids = {static_cast<TokenId>(rng.Below(40))};
    if (rng.Below(2) == 0) request.logprobs = {.enabled = true, .num_top = rng.Between(0, 3)};
    requests.push_back(std::move(request));
  }
  return requests;
}

}  // namespace hayate::exec::testing
