// Tiny mixtures served by the scheduler on dp ranks whose rows travel to their experts: the same
// tokens as one rank, whatever arrives when, and a failure that ends every rank.

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "exec/local_executor.h"
#include "exec/rank_worker.h"
#include "kv/kv_caches.h"
#include "sched/scheduler.h"

namespace hayate::exec {
namespace {

constexpr const char* kV4 = "tests/golden/deepseek_v4/flash";
constexpr const char* kQwen = "tests/golden/qwen_moe/qwen3_moe";
constexpr int32_t kMaxContext = 160;

struct Layout {
  int num_ranks = 1;
  int dp_size = 1;
  int ep_size = 0;
  int num_redundant = 0;
};

struct Arrival {
  int step = 0;  // before which plan it arrives
  Request request;
};

// Requests that share prefixes, arrive in bursts and leave gaps in which few or none run.
std::vector<Arrival> MakeArrivals(int32_t vocab_size, uint64_t seed) {
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
class Server {
 public:
  Server(const char* folder, const Layout& layout, int64_t total_tokens)
      : checkpoint_(weights::Checkpoint::Open(folder).value()) {
    options_.max_running = 8;
    options_.num_dp_ranks = layout.dp_size;
    options_.chunked_prefill_size = 24 * layout.dp_size;
    options_.max_context = kMaxContext;
    ExecutorOptions exec = {.num_ranks = layout.num_ranks,
                            .dp_size = layout.dp_size,
                            .ep_size = layout.ep_size,
                            .precision = ops::MatmulPrecision::kExact,
                            .kv_dtype = DType::kF32,
                            .page_tokens = 16,
                            .max_context = kMaxContext,
                            .max_running = options_.max_running,
                            .max_step_tokens = options_.max_step_tokens(),
                            .max_step_logits = options_.max_step_logits(),
                            .total_tokens = total_tokens * layout.dp_size};
    exec.expert_plan.num_redundant = layout.num_redundant;
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

class DpAttention : public ::testing::TestWithParam<const char*> {};

TEST_P(DpAttention, EveryLayoutGivesTheTokensOfOneRank) {
  const Layout layouts[] = {{.num_ranks = 2, .dp_size = 2},
                            {.num_ranks = 4, .dp_size = 4},
                            {.num_ranks = 4, .dp_size = 2, .num_redundant = 4},
                            {.num_ranks = 2, .ep_size = 2},
                            {.num_ranks = 4, .dp_size = 4, .num_redundant = 4}};
  for (const uint64_t seed : {1, 2}) {
    Server one(GetParam(), {}, 1200);
    const auto arrivals = MakeArrivals(one.executor().facts().vocab_size, seed);
    const auto expected = one.Serve(arrivals);
    ASSERT_EQ(expected.size(), arrivals.size());
    for (const Layout& layout : layouts) {
      Server server(GetParam(), layout, 1200);
      EXPECT_EQ(server.Serve(arrivals), expected)
          << layout.num_ranks << " ranks, " << layout.dp_size << " dp ranks, seed " << seed;
      if (layout.dp_size > 1) {
        EXPECT_GT(server.max_idle_dp_ranks(), 0);
      }
    }
  }
}

TEST_P(DpAttention, ADpRankShortOfMemoryChangesNoAnswer) {
  Server one(GetParam(), {}, 1200);
  const auto arrivals = MakeArrivals(one.executor().facts().vocab_size, 3);
  const auto expected = one.Serve(arrivals);
  Server tight(GetParam(), {.num_ranks = 2, .dp_size = 2}, kMaxContext);
  EXPECT_EQ(tight.Serve(arrivals), expected);
}

TEST_P(DpAttention, ExpertsAreCountedOncePerRow) {
  Server one(GetParam(), {}, 1200);
  const auto arrivals = MakeArrivals(one.executor().facts().vocab_size, 4);
  one.Serve(arrivals);
  const std::vector<int64_t> expected = one.executor().ExpertCounts();
  int64_t total = 0;
  for (const int64_t count : expected) total += count;
  EXPECT_GT(total, 0);
  Server tensor_parallel(GetParam(), {.num_ranks = 2}, 1200);
  tensor_parallel.Serve(arrivals);
  EXPECT_EQ(tensor_parallel.executor().ExpertCounts(), expected);
}

INSTANTIATE_TEST_SUITE_P(Models, DpAttention, ::testing::Values(kV4, kQwen), [](const auto& test) {
  return std::string(test.param == kV4 ? "DeepseekV4" : "Qwen3Moe");
});

TEST(LocalExecutor, RefusesLayoutsThatCannotBe) {
  const auto checkpoint = weights::Checkpoint::Open(kV4).value();
  ExecutorOptions options = {.num_ranks = 3, .dp_size = 2};
  options.max_step_tokens = options.max_step_logits = 8;
  EXPECT_NE(LocalExecutor::Create(checkpoint, options).status().message().find("--dp-size 2"),
            std::string::npos);
  options = {.num_ranks = 3, .dp_size = 3};
  const Status status = LocalExecutor::Create(checkpoint, options).status();
  EXPECT_NE(status.message().find("--ep-num-redundant-experts"), std::string::npos)
      << status.message();
}

// Four dp ranks of a model, each a thread with a worker of its own.
TEST(RankWorker, ARankThatFailsEndsTheStepOnAllWithoutAWait) {
  constexpr int kRanks = 4, kFailing = 2;
  constexpr uint64_t kFatalStep = 3;
  const auto checkpoint = weights::Checkpoint::Open(kQwen).value();
  const auto layout = comm::RankLayout::Create({.num_ranks = kRanks, .dp_size = kRanks}).value();
  const comm::ExpertPlan plan_of_experts = {.num_ranks = kRanks};
  std::vector<comm::ExpertPlacement> placements;
  for (int layer = 0; layer < 3; ++layer) {
    placements.push_back(plan_of_experts.Place(layer, 8).value());
  }
  const StepLimits limits = {.max_rows = kRanks,
                             .max_tokens = 4,
                             .max_logits = 4,
                             .page_tokens = 16,
                             .max_slot_pages = 2,
                             .num_groups = 1};
  auto all = comm::MakeLocalGroup(kRanks).value();
  auto exchanges = comm::TokenExchange::MakeLocal(all);
  std::vector<float> logits(4 * 256 * kRanks);
  std::vector<int32_t> last_tokens(kRanks);
  StepResult result;
  result.rows.resize(kRanks);
  std::vector<int> finished(kRanks, 0);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto r = static_cast<size_t>(rank);
      const auto device = MakeCpuDevice(rank);
      auto alone = comm::MakeLocalGroup(1).value();
      auto model = models::LoadModel(checkpoint, {.experts = placements,
                                                  .expert_rank = rank,
                                                  .device = device.get(),
                                                  .kv_dtype = DType::kF32,
                                                  .page_tokens = 16,
                                                  .max_context = 32})
                       .value();
      const std::vector<int32_t> pool_pages = {4};
      auto worker = RankWorker::Create(*device, *model, *alone[0], limits, pool_pages,
                                       {.logits = logits.data() + 4 * 256 * rank,
                                        .last_tokens = last_tokens.data()},
                                       {.layout = layout,
                                        .rank = rank,
                                        .all = all[r].get(),
                                        .exchange = exchanges[r].get(),
                                        .placements = placements})
                        .value();
      for (uint64_t step = 0; step < 6 && !all[r]->poisoned(); ++step) {
        StepPlan plan;
        plan.step = step;
        for (int32_t slot = 0; slot < kRanks; ++slot) {
          if (step == 0) {
            plan.starts.push_back({.slot = {slot}});
            plan.page_updates.push_back({{slot}, 0, 0, {1}});
          }
          const auto position = static_cast<int32_t>(step);
          plan.rows.push_back({.slot = {slot},
                               .begin = position,
                               .end = position + 1,
                               .first_token = slot,
                               .samples = true});
          plan.tokens.push_back(slot + 5);
          ++plan.num_tokens;
        }
        if (rank == kFailing && step == kFatalStep) {
          all[r]->Poison();
          break;
        }
        worker->Run(plan, result);
        if (!all[r]->poisoned()) ++finished[r];
      }
      EXPECT_TRUE(all[r]->poisoned());
      EXPECT_EQ(alone[0]->poisoned(), rank != kFailing);
      // Whoever has not seen the failure may still read this rank's memory.
      all[r]->Barrier({});
    });
  }
  threads.clear();
  for (const int steps : finished) EXPECT_LE(steps, static_cast<int>(kFatalStep));
}

}  // namespace
}  // namespace hayate::exec
