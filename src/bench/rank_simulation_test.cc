#include "bench/rank_simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <thread>

#include "comm/token_exchange.h"

namespace hayate::bench {
namespace {

RankModel SmallModel() {
  return {.name = "small",
          .num_layers = 4,
          .hidden_size = 32,
          .num_experts = 16,
          .top_k = 3,
          .expert_size = 16,
          .expert_bytes = 1e6,
          .dense_params = 1e6};
}

std::vector<std::vector<int32_t>> ChooseRows(const ExpertRouting& routing, int layer,
                                             const std::vector<int32_t>& rows, int top_k,
                                             Rng& rng) {
  std::vector<std::vector<int32_t>> chosen(rows.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    chosen[r].resize(static_cast<size_t>(rows[r] * top_k));
    for (int32_t row = 0; row < rows[r]; ++row) {
      routing.Choose(layer, rng,
                     std::span(chosen[r]).subspan(static_cast<size_t>(row * top_k),
                                                  static_cast<size_t>(top_k)));
    }
  }
  return chosen;
}

TEST(ExpertRouting, ChoosesDistinctExpertsByTheirWeights) {
  const ExpertRouting routing = ExpertRouting::Zipf(2, 8, 1.0, 3);
  Rng rng(4);
  std::vector<int> counts(8, 0);
  constexpr int kDraws = 20000;
  for (int i = 0; i < kDraws; ++i) {
    int32_t chosen[3];
    routing.Choose(1, rng, chosen);
    ASSERT_NE(chosen[0], chosen[1]);
    ASSERT_NE(chosen[0], chosen[2]);
    ASSERT_NE(chosen[1], chosen[2]);
    ++counts[static_cast<size_t>(chosen[0])];
  }
  // The first choice follows 1, 1/2, … 1/8.
  std::ranges::sort(counts, std::greater());
  double total = 0;
  for (int i = 1; i <= 8; ++i) total += 1.0 / i;
  for (int i = 0; i < 8; ++i) {
    const double p = 1.0 / (i + 1) / total;
    EXPECT_NEAR(counts[static_cast<size_t>(i)], kDraws * p, 5 * std::sqrt(kDraws * p)) << i;
  }
}

TEST(ExpertRouting, RecordedCountsThatCannotBeDrawnFromAreRefused) {
  using Counts = std::vector<std::vector<int64_t>>;
  EXPECT_TRUE(ExpertRouting::Recorded(Counts{{}, {5, 1, 2}}, 2).ok());
  EXPECT_FALSE(ExpertRouting::Recorded(Counts{{5, 0, 0}}, 2).ok());
  EXPECT_FALSE(ExpertRouting::Recorded(Counts{{1, 1}, {1, 1, 1}}, 2).ok());
  EXPECT_FALSE(ExpertRouting::Recorded(Counts{{}}, 1).ok());
}

// What the simulation counts is what ranks that run count.
TEST(CountTraffic, EqualsTheCountersOfRanksThatExchange) {
  constexpr int kTopK = 3, kWidth = 8;
  const ExpertRouting routing = ExpertRouting::Zipf(1, 12, 0.8, 5);
  for (const auto& [num_ranks, redundant] : {std::pair{2, 0}, {2, 2}, {4, 0}, {4, 4}}) {
    const auto placement = comm::ExpertPlacement::Trivial(12, redundant, num_ranks).value();
    const std::vector<int32_t> rows =
        num_ranks == 2 ? std::vector<int32_t>{30, 11} : std::vector<int32_t>{30, 0, 7, 19};
    Rng rng(6);
    const auto chosen = ChooseRows(routing, 0, rows, kTopK, rng);
    const LayerTraffic traffic = CountTraffic(chosen, kTopK, placement);

    auto group = comm::MakeLocalGroup(num_ranks).value();
    auto exchanges = comm::TokenExchange::MakeLocal(group);
    std::vector<int64_t> arrived(rows.size());
    std::vector<std::jthread> threads;
    for (size_t r = 0; r < rows.size(); ++r) {
      threads.emplace_back([&, r] {
        const auto device = MakeCpuDevice(0);
        Workspace workspace(Buffer::Allocate(*device, size_t{1} << 20).value());
        const int64_t n = rows[r];
        const TensorView x = workspace.Take(DType::kF32, {n, kWidth});
        const TensorView back = workspace.Take(DType::kF32, {n * kTopK, kWidth});
        float* weights = workspace.TakeArray<float>(n * kTopK);
        int32_t* physical = workspace.TakeArray<int32_t>(n * kTopK);
        std::fill_n(x.as<float>(), n * kWidth, 1.0f);
        std::fill_n(weights, n * kTopK, 1.0f);
        for (int64_t pair = 0; pair < n * kTopK; ++pair) {
          physical[pair] = placement.ReplicaFor(chosen[r][static_cast<size_t>(pair)],
                                                pair / kTopK + static_cast<int64_t>(r));
        }
        const auto got = exchanges[r]->Dispatch({}, workspace,
                                                {.x = x,
                                                 .choices = kTopK,
                                                 .experts = physical,
                                                 .weights = weights,
                                                 .rows = rows,
                                                 .placement = &placement});
        arrived[r] = got.x.rows();
        exchanges[r]->Combine({}, got.x, back);
        group[r]->Barrier({});  // the workspace is read until here
      });
    }
    threads.clear();
    for (size_t r = 0; r < rows.size(); ++r) {
      const comm::ExchangeCounters& counters = exchanges[r]->counters();
      EXPECT_EQ(traffic.rows[r], arrived[r]);
      EXPECT_EQ(traffic.dispatched[r], counters.dispatched_rows);
      EXPECT_EQ(traffic.combined[r], counters.combined_rows);
      EXPECT_EQ((traffic.dispatched[r] + traffic.combined[r]) * kWidth * 4, counters.bytes);
    }
    EXPECT_EQ(std::accumulate(traffic.dispatched.begin(), traffic.dispatched.end(), int64_t{0}),
              std::accumulate(traffic.dispatch_received.begin(), traffic.dispatch_received.end(),
                              int64_t{0}));
  }
}

TEST(OverlapTwoBatches, NeverBeatsTheBusierUnitNorLosesToOneAfterTheOther) {
  Rng rng(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<LayerTimes> batches[2];
    double compute = 0, link = 0, serial = 0;
    const int layers = rng.Between(1, 6);
    for (auto& batch : batches) {
      for (int layer = 0; layer < layers; ++layer) {
        batch.push_back({rng.NextFloat(), rng.NextFloat(), rng.NextFloat(), rng.NextFloat()});
        compute += batch.back().attention_us + batch.back().experts_us;
        link += batch.back().dispatch_us + batch.back().combine_us;
        serial += batch.back().total();
      }
    }
    const double overlapped = OverlapTwoBatches(batches[0], batches[1]);
    EXPECT_GE(overlapped, std::max(compute, link) - 1e-9);
    EXPECT_LE(overlapped, serial + 1e-9);
  }
  // Equal pieces: after the first, one batch computes while the other travels.
  const std::vector<LayerTimes> equal(3, {1, 1, 1, 1});
  EXPECT_DOUBLE_EQ(OverlapTwoBatches(equal, equal), 13);
}

TEST(SimulateRanks, RedundantExpertsFlattenASkewedLoad) {
  const RankModel model = SmallModel();
  const ExpertRouting routing = ExpertRouting::Zipf(model.num_layers, model.num_experts, 1.0, 8);
  RankSimulationOptions options = {.model = model,
                                   .step = {.num_ranks = 8, .sequences_per_rank = 32}};
  options.balanced = false;
  const RankSimulation in_order = SimulateRanks(options, routing).value();
  options.balanced = true;
  const RankSimulation balanced = SimulateRanks(options, routing).value();
  options.num_redundant = 8;
  const RankSimulation redundant = SimulateRanks(options, routing).value();
  EXPECT_LT(balanced.imbalance, in_order.imbalance);
  EXPECT_LT(redundant.imbalance, balanced.imbalance);
  EXPECT_LT(redundant.imbalance, 1.15);
  EXPECT_GE(redundant.imbalance, 1.0);
  EXPECT_LE(in_order.step_ms_two_batches, in_order.step_ms * 2);
}

// One rank has nobody to exchange with; its times are those of the formulas.
TEST(SimulateRanks, OneRankCostsWhatItReads) {
  RankModel model = SmallModel();
  const ExpertRouting routing = ExpertRouting::Zipf(model.num_layers, model.num_experts, 0.0, 9);
  RankSimulationOptions options = {
      .model = model,
      .rates = {.memory_gb_s = 1000, .tflop_s = 1e9, .link_gb_s = 100, .exchange_us = 2},
      .step = {.num_ranks = 1, .sequences_per_rank = 1000}};
  const RankSimulation run = SimulateRanks(options, routing).value();
  EXPECT_EQ(run.dispatch_mb, 0);
  EXPECT_DOUBLE_EQ(run.experts_touched, 16);
  // 1 MB of dense weights, 16 MB of experts, and two exchanges without a byte, a layer.
  EXPECT_NEAR(run.step_ms, 4 * (1 + 16 + 2 * 2) * 1e-3, 1e-9);
  EXPECT_NEAR(run.tokens_per_s, 1000 * 3.25 / run.step_ms * 1e3, 1e-6);
}

TEST(TimeExperts, TakesMeasuredCostsOfEachExpertInPlaceOfTheRates) {
  const RankModel model = SmallModel();
  RankRates rates = {.memory_gb_s = 1, .exchange_us = 0};
  rates.expert_costs = {{1, 10}, {4, 16}, {8, 36}};
  EXPECT_EQ(rates.ExpertUs(0), 0);
  EXPECT_EQ(rates.ExpertUs(1), 10);
  EXPECT_DOUBLE_EQ(rates.ExpertUs(2), 12);
  EXPECT_DOUBLE_EQ(rates.ExpertUs(4), 16);
  EXPECT_DOUBLE_EQ(rates.ExpertUs(10), 46);
  // Two ranks of two experts: experts 0 and 1 lie on the first.
  const auto placement = comm::ExpertPlacement::Trivial(4, 0, 2).value();
  const std::vector<std::vector<int32_t>> chosen = {{0, 1, 0}, {0, 3, 0}};
  const LayerTraffic traffic = CountTraffic(chosen, 1, placement);
  EXPECT_EQ(traffic.expert_rows, (std::vector<std::vector<int32_t>>{{4, 1}, {0, 1}}));
  EXPECT_DOUBLE_EQ(TimeExperts(model, rates, traffic).experts_us, 16 + 10);
  // The one expert of the second rank alone would be read at 1 MB a millisecond.
  rates.expert_costs.clear();
  EXPECT_DOUBLE_EQ(TimeExperts(model, rates, traffic).experts_us, 2000);
}

TEST(SimulateRanks, RefusesWhatDoesNotFit) {
  const ExpertRouting routing = ExpertRouting::Zipf(1, 15, 0.0, 1);
  EXPECT_FALSE(SimulateRanks({.model = SmallModel()}, routing).ok());
  const ExpertRouting fits = ExpertRouting::Zipf(1, 16, 0.0, 1);
  EXPECT_FALSE(SimulateRanks({.model = SmallModel(), .step = {.num_ranks = 5}}, fits).ok());
  EXPECT_FALSE(FindRankModel("v5").ok());
  EXPECT_EQ(FindRankModel("v4-flash").value().num_experts, 256);
}

}  // namespace
}  // namespace hayate::bench
