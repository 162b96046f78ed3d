// Experts placed by what was counted, and experts that move while sequences run: the same tokens,
// on ranks that are loaded more evenly.

#include "exec/expert_rebalancer.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

#include "comm/expert_plan_json.h"
#include "exec/testing/mixture_server.h"

namespace hayate::exec {
namespace {

using testing::Layout;
using testing::LayoutsThatMove;
using testing::MakeArrivals;
using testing::MixtureServer;

constexpr int64_t kTokens = 1200;

class MovedExperts : public ::testing::TestWithParam<const char*> {};

// Weights of every kind: FP4 and FP8 in blocks, bf16, experts with biases, layers that list their
// experts, dense layers between.
INSTANTIATE_TEST_SUITE_P(Models, MovedExperts,
                         ::testing::Values("deepseek_v4/flash", "deepseek_v41/tiny",
                                           "deepseek_v3/deepseek_v3", "qwen_moe/qwen3_moe",
                                           "gpt_oss/gpt_oss"),
                         [](const auto& test) {
                           const std::string name = test.param;
                           return name.substr(name.find('/') + 1) == "tiny"
                                      ? std::string("deepseek_v41")
                                      : name.substr(name.find('/') + 1);
                         });

std::string FolderOf(const char* name) { return std::string("tests/golden/") + name; }

TEST_P(MovedExperts, ChangeNoTokenWhileSequencesRun) {
  const std::string folder = FolderOf(GetParam());
  MixtureServer one(folder.c_str(), {}, kTokens);
  const auto arrivals = MakeArrivals(one.executor().facts().vocab_size, 11);
  const auto expected = one.Serve(arrivals);
  for (const Layout& layout : LayoutsThatMove(one.executor().num_experts())) {
    MixtureServer server(folder.c_str(), layout, kTokens);
    EXPECT_EQ(server.Serve(arrivals), expected)
        << layout.num_ranks << " ranks, " << layout.dp_size << " dp ranks";
    const RebalanceStats stats = server.executor().rebalance_stats();
    EXPECT_GT(stats.rebalances, 1);
    EXPECT_GT(stats.moved, stats.rebalances);
  }
}

// Counts of one server, written and read as a file is, place the experts of the next.
TEST_P(MovedExperts, RecordedCountsLoadTheRanksMoreEvenly) {
  const std::string folder = FolderOf(GetParam());
  const int32_t experts =
      models::ReadExpertShape(weights::Checkpoint::Open(folder).value()).value().num_experts;
  Layout layout = {.num_ranks = 4, .dp_size = 4, .num_redundant = 3 - (experts - 1) % 4};
  MixtureServer in_order(folder.c_str(), layout, kTokens);
  const auto arrivals = MakeArrivals(in_order.executor().facts().vocab_size, 12);
  const auto expected = in_order.Serve(arrivals);
  const std::vector<int64_t> counts = in_order.executor().ExpertCounts();

  comm::ExpertPlan plan;
  ASSERT_TRUE(comm::ReadExpertPlan(comm::WriteExpertCounts(counts, experts), plan).ok());
  layout.logical_count = plan.logical_count;
  MixtureServer placed(folder.c_str(), layout, kTokens);
  EXPECT_EQ(placed.Serve(arrivals), expected);
  EXPECT_EQ(placed.executor().ExpertCounts(), counts);
  const double before = in_order.executor().ExpertBalance(counts);
  EXPECT_GT(placed.executor().ExpertBalance(counts), before);

  layout.num_redundant += 4;
  MixtureServer copied(folder.c_str(), layout, kTokens);
  EXPECT_EQ(copied.Serve(arrivals), expected);
  EXPECT_GT(copied.executor().ExpertBalance(counts), placed.executor().ExpertBalance(counts));
}

TEST(ExpertRebalancer, MovesNothingWhereTheLoadIsEvenEnough) {
  Layout layout = {.num_ranks = 2, .dp_size = 2, .rebalance_interval = 2};
  const std::string folder = FolderOf("qwen_moe/qwen3_moe");
  MixtureServer moved(folder.c_str(), layout, kTokens);
  const auto arrivals = MakeArrivals(moved.executor().facts().vocab_size, 13);
  moved.Serve(arrivals);
  EXPECT_GT(moved.executor().rebalance_stats().moved, 0);
  layout.max_balance = 0.0;
  MixtureServer even(folder.c_str(), layout, kTokens);
  even.Serve(arrivals);
  EXPECT_EQ(even.executor().rebalance_stats().moved, 0);
}

TEST(ExpertRebalancer, IsRefusedWhereNoRowsTravel) {
  const auto checkpoint = weights::Checkpoint::Open(FolderOf("qwen_moe/qwen3_moe")).value();
  ExecutorOptions options = {.num_ranks = 2};
  options.max_step_tokens = options.max_step_logits = 8;
  options.rebalance.interval = 100;
  const Status status = LocalExecutor::Create(checkpoint, options).status();
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(status.message().find("--enable-eplb"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace hayate::exec
