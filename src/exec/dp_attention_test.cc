// Tiny mixtures served by the scheduler on dp ranks whose rows travel to their experts: the same
// tokens as one rank, whatever arrives when, and a failure that ends every rank.

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "exec/rank_worker.h"
#include "exec/testing/mixture_server.h"

namespace hayate::exec {
namespace {

constexpr const char* kV4 = "tests/golden/deepseek_v4/flash";
constexpr const char* kQwen = "tests/golden/qwen_moe/qwen3_moe";

using testing::kMaxContext;
using testing::Layout;
using testing::MakeArrivals;
using Server = testing::MixtureServer;

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
      for (uint64_t step = 0; step < 6; ++step) {
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
        if (alone[0]->poisoned()) break;
        ++finished[r];
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
