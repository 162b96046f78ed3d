// Layouts of ranks on GPUs, or on one that they share: the tokens of one rank, and an error on all
// when one fails.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "exec/testing/mixture_server.h"

namespace hayate::exec {
namespace {

using testing::Layout;
using testing::LayoutsThatMove;
using testing::MakeArrivals;
using Server = testing::MixtureServer;

// Before anything else of CUDA.
[[maybe_unused]] const bool kPrepared = (PrepareToShareGpus(), true);

class RankLayoutsGpu : public ::testing::TestWithParam<const char*> {
 protected:
  static std::string Checkpoint() { return std::string("tests/golden/") + GetParam(); }

  // Prompts in chunks beside decoding, idle ranks, uneven batches, steps that were captured.
  static void ExpectTokensOfOneRank(Layout layout) {
    layout.device = DeviceKind::kCuda;
    for (const uint64_t seed : {1, 2}) {
      Server one(Checkpoint().c_str(), {.device = DeviceKind::kCuda}, 1200);
      const auto arrivals = MakeArrivals(one.executor().facts().vocab_size, seed);
      const auto expected = one.Serve(arrivals);
      ASSERT_EQ(expected.size(), arrivals.size());
      Server server(Checkpoint().c_str(), layout, 1200);
      EXPECT_EQ(server.Serve(arrivals), expected) << "seed " << seed;
      if (layout.dp_size > 1) {
        EXPECT_GT(server.max_idle_dp_ranks(), 0);
      }
    }
  }

  // [layers] how often any expert was chosen.
  static std::vector<int64_t> ChoicesOfLayers(const Server& server) {
    const std::vector<int64_t> counts = server.executor().ExpertCounts();
    const auto width = static_cast<size_t>(server.executor().num_experts());
    std::vector<int64_t> choices(counts.size() / width);
    for (size_t i = 0; i < counts.size(); ++i) choices[i / width] += counts[i];
    return choices;
  }
};

TEST_P(RankLayoutsGpu, HeadsAndExpertsOverTwoRanks) { ExpectTokensOfOneRank({.num_ranks = 2}); }

TEST_P(RankLayoutsGpu, RowsThatTravelBetweenTwoRanks) {
  ExpectTokensOfOneRank({.num_ranks = 2, .ep_size = 2});
}

TEST_P(RankLayoutsGpu, TwoDpRanks) { ExpectTokensOfOneRank({.num_ranks = 2, .dp_size = 2}); }

TEST_P(RankLayoutsGpu, FourDpRanksWithCopiesOfExperts) {
  ExpectTokensOfOneRank({.num_ranks = 4, .dp_size = 4, .num_redundant = 4});
}

TEST_P(RankLayoutsGpu, TwoDpRanksOfTwo) {
  ExpectTokensOfOneRank({.num_ranks = 4, .dp_size = 2, .num_redundant = 4});
}

std::string NameOf(const ::testing::TestParamInfo<const char*>& test) {
  const std::string name = test.param, last = name.substr(name.find('/') + 1);
  return last == "tiny" ? "deepseek_v41" : last;
}
INSTANTIATE_TEST_SUITE_P(Models, RankLayoutsGpu,
                         ::testing::Values("deepseek_v4/flash", "deepseek_v3/deepseek_v3",
                                           "qwen_moe/qwen3_moe"),
                         NameOf);

class MovedExpertsGpu : public RankLayoutsGpu {};

// Between steps that were captured before they moved; every choice is counted once, and padding
// never: as many of each layer as on the CPU.
TEST_P(MovedExpertsGpu, ChangeNoTokenWhileSequencesRun) {
  Server one(Checkpoint().c_str(), {.device = DeviceKind::kCuda}, 1200);
  const auto arrivals = MakeArrivals(one.executor().facts().vocab_size, 11);
  const auto expected = one.Serve(arrivals);
  for (Layout layout : LayoutsThatMove(one.executor().num_experts())) {
    SCOPED_TRACE(std::to_string(layout.num_ranks) + " ranks, " + std::to_string(layout.dp_size) +
                 " dp ranks");
    Server on_cpu(Checkpoint().c_str(), layout, 1200);
    on_cpu.Serve(arrivals);
    layout.device = DeviceKind::kCuda;
    Server server(Checkpoint().c_str(), layout, 1200);
    EXPECT_EQ(server.Serve(arrivals), expected);
    const RebalanceStats stats = server.executor().rebalance_stats();
    EXPECT_GT(stats.rebalances, 1);
    EXPECT_GT(stats.moved, stats.rebalances);
    EXPECT_EQ(ChoicesOfLayers(server), ChoicesOfLayers(on_cpu));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MovedExpertsGpu,
                         ::testing::Values("deepseek_v4/flash", "deepseek_v41/tiny",
                                           "deepseek_v3/deepseek_v3", "qwen_moe/qwen3_moe",
                                           "gpt_oss/gpt_oss"),
                         NameOf);

// Two dp ranks with a prompt each.
StepPlan PromptOfEach(uint64_t step) {
  StepPlan plan{.step = step};
  SamplingParams greedy;
  greedy.temperature = 0.0f;
  for (int32_t slot = 0; slot < 2; ++slot) {
    plan.starts.push_back({.slot = {slot}, .sampling = greedy, .prompt_length = 8});
    plan.page_updates.push_back({{slot}, 0, 0, {1}});
    plan.rows.push_back({.slot = {slot},
                         .begin = 0,
                         .end = 8,
                         .first_token = static_cast<int32_t>(plan.tokens.size()),
                         .samples = true});
    for (int32_t i = 0; i < 8; ++i) plan.tokens.push_back(10 * (slot + 1) + i);
  }
  plan.num_tokens = 16;
  return plan;
}

TEST(RanksOfGpus, ARankThatFailsEndsTheStepsOnAllRanks) {
  const auto checkpoint = weights::Checkpoint::Open("tests/golden/qwen_moe/qwen3_moe").value();
  struct Case {
    int dp_size;
    int64_t rebalance_interval;  // ranks meet before every step, too
  };
  for (const Case& tested : {Case{1, 0}, Case{2, 0}, Case{2, 1}}) {
    auto executor = LocalExecutor::Create(checkpoint, {.device = DeviceKind::kCuda,
                                                       .num_ranks = 2,
                                                       .gpu_step = CountCudaDevices() < 2 ? 0 : 1,
                                                       .dp_size = tested.dp_size,
                                                       .rebalance = {tested.rebalance_interval},
                                                       .fail_rank_at_step = 3,
                                                       .memory_fraction = 0.1,
                                                       .max_graph_rows = 2,
                                                       .precision = ops::MatmulPrecision::kExact,
                                                       .kv_dtype = DType::kF32,
                                                       .page_tokens = 16,
                                                       .max_context = 64,
                                                       .max_running = 4,
                                                       .max_step_tokens = 64,
                                                       .max_step_logits = 8,
                                                       .total_tokens = 16 * 16});
    ASSERT_TRUE(executor.ok()) << executor.status().message();
    for (uint64_t step = 0; step < 5; ++step) {
      (*executor)->Submit(PromptOfEach(step));
      const StepResult& result = (*executor)->WaitOldest();
      EXPECT_EQ(result.status.ok(), step < 2) << step << ": " << result.status.message();
      for (const RowResult& row : result.rows) {
        EXPECT_EQ(row.tokens.size(), step < 2 ? 1u : 0u) << step;
      }
    }
  }
}

TEST(RanksOfGpus, LayoutsThatDoNotFitTheGpuAreRefusedByName) {
  const auto checkpoint = weights::Checkpoint::Open("tests/golden/qwen_moe/qwen3_moe").value();
  const auto refusal = [&](ExecutorOptions options) {
    options.device = DeviceKind::kCuda;
    options.max_step_tokens = options.max_step_logits = 8;
    return LocalExecutor::Create(checkpoint, options).status().message();
  };
  EXPECT_NE(refusal({.num_ranks = 5, .gpu_step = 0}).find("--gpu-id-step 0"), std::string::npos);
  EXPECT_NE(refusal({.num_ranks = 9}).find("--tp-size 9"), std::string::npos);
  EXPECT_NE(refusal({.num_ranks = 2, .gpu_step = 0, .rebalance = {.interval = 5}})
                .find("--enable-eplb moves experts where rows travel"),
            std::string::npos);
}

}  // namespace
}  // namespace hayate::exec
