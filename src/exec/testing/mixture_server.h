#pragma once
// Tiny mixtures of experts on the workers, served as the engine would, in the small: arrivals in
// bursts, two steps in flight, no events. For tests of layouts of ranks.

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "exec/local_executor.h"
#include "exec/testing/layout.h"
#include "kv/kv_caches.h"
#include "sched/scheduler.h"

namespace hayate::exec::testing {

inline constexpr int32_t kMaxContext = 160;

struct Arrival {
  int step = 0;  // before which plan it arrives
  Request request;
};

// Requests that share prefixes, arrive in bursts and leave gaps in which few or none run.
inline std::vector<Arrival> MakeArrivals(int32_t vocab_size, uint64_t seed) {
  Rng rng(seed);
  std::vector<TokenId> shared(60);
  const auto draw = [&] {
    return static_cast<TokenId>(rng.Below(static_cast<uint32_t>(vocab_size)));
  };
  for (TokenId& token : shared) token = draw();
  std::vector<Arrival> arrivals;
  int step = 0;
  for (uint64_t i = 0; i < 14; ++i) {
    Request request;
    request.id = {i + 1};
    const int32_t length = rng.Between(1, 70);
    for (int32_t t = 0; t < length; ++t) request.prompt.push_back(draw());
    std::copy_n(shared.begin(), rng.Between(0, std::min(length, 60)), request.prompt.begin());
    request.sampling.temperature = rng.Below(3) == 0 ? 0.8f : 0.0f;
    request.sampling.seed = i;
    request.sampling.max_new_tokens = rng.Between(1, 24);
    request.sampling.ignore_eos = true;
    arrivals.push_back({step, std::move(request)});
    if (rng.Below(3) == 0) step += rng.Between(1, 12);
  }
  return arrivals;
}

// Serves everything, two steps in flight; the answers' tokens by request.
class MixtureServer {
 public:
  MixtureServer(const char* folder, const Layout& layout, int64_t total_tokens)
      : checkpoint_(weights::Checkpoint::Open(folder).value()) {
    options_.max_running = 8;
    options_.num_dp_ranks = layout.dp_size;
    options_.chunked_prefill_size = 24 * layout.dp_size;
    options_.max_context = kMaxContext;
    ExecutorOptions exec = {.device = layout.device,
                            .num_ranks = layout.num_ranks,
                            .gpu_step = CountCudaDevices() < layout.num_ranks ? 0 : 1,
                            .dp_size = layout.dp_size,
                            .ep_size = layout.ep_size,
                            .memory_fraction = 0.1,
                            .max_graph_rows = 4,
                            .precision = ops::MatmulPrecision::kExact,
                            .kv_dtype = DType::kF32,
                            .page_tokens = 16,
                            .max_context = kMaxContext,
                            .max_running = options_.max_running,
                            .max_step_tokens = options_.max_step_tokens(),
                            .max_step_logits = options_.max_step_logits(),
                            .total_tokens = total_tokens * layout.dp_size};
    exec.expert_plan.num_redundant = layout.num_redundant;
    exec.expert_plan.logical_count = layout.logical_count;
    exec.rebalance = {layout.rebalance_interval, layout.max_balance};
    executor_ = LocalExecutor::Create(checkpoint_, exec).value();
    caches_ =
        kv::KvCaches::Create({executor_->cache_layout(), executor_->pool_pages()}, layout.dp_size)
            .value();
    scheduler_ = std::make_unique<sched::Scheduler>(options_, *caches_, clock_);
  }

  std::map<RequestId, std::vector<TokenId>> Serve(const std::vector<Arrival>& arrivals) {
    size_t next = 0;
    for (int step = 0; next < arrivals.size() || !scheduler_->idle(); ++step) {
      while (next < arrivals.size() && arrivals[next].step <= step) {
        scheduler_->Add(arrivals[next++].request);
      }
      StepPlan plan;
      if (scheduler_->Plan(plan)) {
        Submit(plan);
        if (in_flight_.size() == 2) Commit();
      } else if (!in_flight_.empty()) {
        Commit();
      }
    }
    while (!in_flight_.empty()) Commit();
    const Status integrity = caches_->CheckIntegrity();
    EXPECT_TRUE(integrity.ok()) << integrity.ToString();
    return answers_;
  }

  const LocalExecutor& executor() const { return *executor_; }
  const kv::KvCaches& caches() const { return *caches_; }
  uint64_t num_retractions() const { return scheduler_->stats().num_retractions; }
  int max_idle_dp_ranks() const { return max_idle_; }

 private:
  struct InFlight {
    StepPlan plan;
    std::vector<RequestId> owners;
  };

  void Submit(const StepPlan& plan) {
    InFlight step{plan, {}};
    std::vector<bool> busy(static_cast<size_t>(options_.num_dp_ranks));
    for (const StepRow& row : plan.rows) {
      step.owners.push_back(scheduler_->InSlot(row.slot)->request.id);
      busy[static_cast<size_t>(row.slot.value % options_.num_dp_ranks)] = true;
    }
    max_idle_ = std::max(max_idle_, static_cast<int>(std::ranges::count(busy, false)));
    executor_->Submit(plan);
    scheduler_->Submitted(plan);
    in_flight_.push_back(std::move(step));
  }

  void Commit() {
    const InFlight step = std::move(in_flight_.front());
    in_flight_.pop_front();
    const StepResult& result = executor_->WaitOldest();
    ASSERT_TRUE(result.status.ok()) << result.status.ToString();
    scheduler_->Retired(step.plan.step);
    for (size_t i = 0; i < step.owners.size(); ++i) {
      sched::Sequence* sequence = scheduler_->Find(step.owners[i]);
      if (sequence == nullptr || !step.plan.rows[i].samples) continue;
      ASSERT_FALSE(result.rows[i].bad_logits);
      ASSERT_EQ(result.rows[i].tokens.size(), 1u);
      const TokenId token = result.rows[i].tokens[0];
      answers_[step.owners[i]].push_back(token);
      scheduler_->Append(*sequence, token);
      if (sequence->num_generated() < sequence->request.sampling.max_new_tokens) continue;
      scheduler_->Finish(*sequence, sched::FinishMode::kPublish);
    }
  }

  weights::Checkpoint checkpoint_;
  sched::SchedulerOptions options_;
  VirtualClock clock_;
  std::unique_ptr<LocalExecutor> executor_;
  std::unique_ptr<kv::KvCaches> caches_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::deque<InFlight> in_flight_;
  std::map<RequestId, std::vector<TokenId>> answers_;
  int max_idle_ = 0;
};

}  // namespace hayate::exec::testing
