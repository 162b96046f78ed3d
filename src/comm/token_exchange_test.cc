#include "comm/token_exchange.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <thread>

#include "base/rng.h"

namespace hayate::comm {
namespace {

constexpr int64_t kWidth = 5;
constexpr size_t kWorkspaceBytes = 1 << 22;

// One rank of a test: its exchange, its memory and what it holds of a layer.
struct Member {
  TokenExchange& exchange;
  Group& group;
  Workspace workspace;
};

void OnEveryRank(int num_ranks, const std::function<void(Member&)>& body) {
  auto group = MakeLocalGroup(num_ranks).value();
  auto exchanges = TokenExchange::MakeLocal(group);
  const auto device = MakeCpuDevice(0);
  std::vector<Member> members;
  for (size_t rank = 0; rank < group.size(); ++rank) {
    members.push_back({*exchanges[rank], *group[rank],
                       Workspace(Buffer::Allocate(*device, kWorkspaceBytes).value())});
  }
  std::vector<std::jthread> threads;
  for (Member& member : members) threads.emplace_back([&body, &member] { body(member); });
}

// A layer's rows on one rank, the same whoever makes them.
struct Rows {
  std::vector<float> x;          // [n, kWidth]
  std::vector<int32_t> experts;  // [n, K]
  std::vector<float> weights;    // [n, K]
};
Rows MakeRows(int rank, int round, int64_t count, int choices, const ExpertPlacement& placement) {
  Rng rng(static_cast<uint64_t>(round * 100 + rank));
  Rows rows;
  for (int64_t i = 0; i < count * kWidth; ++i) rows.x.push_back(rng.NextFloat());
  for (int64_t t = 0; t < count; ++t) {
    // Distinct logical experts, as a router chooses them.
    std::vector<int32_t> logical(static_cast<size_t>(placement.num_experts()));
    std::iota(logical.begin(), logical.end(), 0);
    for (int j = 0; j < choices; ++j) {
      const auto other =
          static_cast<size_t>(j) + rng.Below(static_cast<uint32_t>(std::ssize(logical) - j));
      std::swap(logical[static_cast<size_t>(j)], logical[other]);
      rows.experts.push_back(placement.ReplicaFor(logical[static_cast<size_t>(j)], t + rank));
      rows.weights.push_back(rng.NextFloat());
    }
  }
  return rows;
}

// Stands for an expert: scales by the logical expert's number and adds the weight.
void RunExpert(int32_t logical, const float* x, float weight, float* out) {
  for (int64_t i = 0; i < kWidth; ++i) {
    out[i] = x[i] * static_cast<float>(logical + 1) + weight;
  }
}

DispatchedRows Dispatch(Member& member, const Rows& rows, const std::vector<int32_t>& counts,
                        int choices, const ExpertPlacement& placement) {
  const auto n = static_cast<int64_t>(rows.experts.size()) / choices;
  return member.exchange.Dispatch(
      {}, member.workspace,
      {.x = {reinterpret_cast<const std::byte*>(rows.x.data()), DType::kF32, Shape{n, kWidth}},
       .choices = choices,
       .experts = rows.experts.data(),
       .weights = rows.weights.data(),
       .rows = counts,
       .placement = &placement});
}

// One exchange of a rank; the results by row and choice, [n × K, kWidth].
std::vector<float> Exchange(Member& member, const Rows& rows, const std::vector<int32_t>& counts,
                            int choices, const ExpertPlacement& placement) {
  const size_t mark = member.workspace.mark();
  const auto n = static_cast<int64_t>(rows.experts.size()) / choices;
  const DispatchedRows arrived = Dispatch(member, rows, counts, choices, placement);
  const TensorView results = member.workspace.Take(DType::kF32, {arrived.x.rows(), kWidth});
  for (int64_t i = 0; i < arrived.x.rows(); ++i) {
    const auto place = static_cast<size_t>(arrived.places[i]);
    RunExpert(placement.of_rank(member.group.rank())[place], arrived.x.as<float>() + i * kWidth,
              arrived.weights[i], results.as<float>() + i * kWidth);
  }
  std::vector<float> out(static_cast<size_t>(n * choices * kWidth), -1.0f);
  member.exchange.Combine(
      {}, results, {reinterpret_cast<std::byte*>(out.data()), DType::kF32, {n * choices, kWidth}});
  member.workspace.ResetTo(mark);
  return out;
}

std::vector<float> Expected(const Rows& rows, int choices, const ExpertPlacement& placement) {
  std::vector<float> out(rows.experts.size() * kWidth);
  for (size_t pair = 0; pair < rows.experts.size(); ++pair) {
    const auto physical = static_cast<size_t>(rows.experts[pair]);
    RunExpert(placement.logical_of_physical()[physical],
              rows.x.data() + static_cast<int64_t>(pair) / choices * kWidth, rows.weights[pair],
              out.data() + static_cast<int64_t>(pair) * kWidth);
  }
  return out;
}

TEST(TokenExchange, EveryRowComesBackFromItsExpertsWhateverTheCounts) {
  for (const int num_ranks : {1, 2, 3, 4}) {
    const auto placement = ExpertPlacement::Trivial(6, num_ranks == 4 ? 2 : 0, num_ranks).value();
    OnEveryRank(num_ranks, [&](Member& member) {
      Rng rng(9);  // the same counts on every rank: the plan
      for (int round = 0; round < 60; ++round) {
        const int choices = rng.Between(1, 6);
        std::vector<int32_t> counts;
        for (int r = 0; r < num_ranks; ++r) {
          counts.push_back(rng.Below(3) == 0 ? 0 : rng.Between(0, 40));  // idle ranks, uneven ones
        }
        const auto rank = member.group.rank();
        const Rows rows =
            MakeRows(rank, round, counts[static_cast<size_t>(rank)], choices, placement);
        EXPECT_EQ(Exchange(member, rows, counts, choices, placement),
                  Expected(rows, choices, placement))
            << num_ranks << " ranks, round " << round;
      }
    });
  }
}

TEST(TokenExchange, AStepWithoutAnyRowIsAnExchangeToo) {
  const auto placement = ExpertPlacement::Trivial(4, 0, 2).value();
  OnEveryRank(2, [&](Member& member) {
    const std::vector<int32_t> counts = {0, 0};
    for (int i = 0; i < 3; ++i) {
      EXPECT_TRUE(Exchange(member, {}, counts, 2, placement).empty());
    }
    EXPECT_EQ(member.exchange.counters().exchanges, 3);
    EXPECT_EQ(member.exchange.counters().bytes, 0);
    EXPECT_FALSE(member.group.poisoned());
  });
}

TEST(TokenExchange, ArrivesByRankRowAndChoiceWithinTheBound) {
  const auto placement = ExpertPlacement::Trivial(4, 0, 2).value();
  OnEveryRank(2, [&](Member& member) {
    // Rank 0: row 0 to experts 3 and 0, row 1 to 2 and 3. Rank 1: row 0 to 0 and 1.
    const bool first = member.group.rank() == 0;
    Rows rows;
    rows.x = first ? std::vector<float>(2 * kWidth, 1.0f) : std::vector<float>(kWidth, 2.0f);
    rows.experts = first ? std::vector<int32_t>{3, 0, 2, 3} : std::vector<int32_t>{0, 1};
    rows.weights = first ? std::vector<float>{1, 2, 3, 4} : std::vector<float>{5, 6};
    const std::vector<int32_t> counts = {2, 1};
    const int64_t pairs = first ? 4 : 2;
    const DispatchedRows arrived = Dispatch(member, rows, counts, 2, placement);
    ASSERT_EQ(arrived.x.rows(), 3);
    const std::vector<int32_t> places(arrived.places, arrived.places + 3);
    const std::vector<float> weights(arrived.weights, arrived.weights + 3);
    EXPECT_EQ(places, first ? (std::vector<int32_t>{0, 0, 1}) : (std::vector<int32_t>{1, 0, 1}));
    EXPECT_EQ(weights, first ? (std::vector<float>{2, 5, 6}) : (std::vector<float>{1, 3, 4}));
    EXPECT_LE(arrived.x.rows(), TokenExchange::MaxArrivals(3, 2, placement.per_rank()));
    std::vector<float> out(static_cast<size_t>(pairs * kWidth));
    member.exchange.Combine(
        {}, arrived.x, {reinterpret_cast<std::byte*>(out.data()), DType::kF32, {pairs, kWidth}});
    EXPECT_EQ(out, std::vector<float>(out.size(), first ? 1.0f : 2.0f));
    // A row goes to a rank once, and comes back once for each of its experts there.
    const ExchangeCounters& counters = member.exchange.counters();
    EXPECT_EQ(counters.dispatched_rows, first ? 2 : 1);
    EXPECT_EQ(counters.combined_rows, first ? 3 : 2);
    EXPECT_EQ(counters.bytes, (first ? 5 : 3) * kWidth * 4);
  });
}

TEST(TokenExchange, ARankThatBringsOtherRowsThanPlannedEndsAllWithItsName) {
  const auto placement = ExpertPlacement::Trivial(6, 0, 3).value();
  std::atomic<int> ended{0};
  std::vector<std::vector<Rows>> rows(3);
  for (int rank = 0; rank < 3; ++rank) {
    for (int round = 0; round < 20; ++round) {
      const int64_t count = rank == 1 && round == 7 ? 3 : 2;
      rows[static_cast<size_t>(rank)].push_back(MakeRows(rank, round, count, 2, placement));
    }
  }
  OnEveryRank(3, [&](Member& member) {
    const std::vector<int32_t> counts = {2, 2, 2};
    for (const Rows& mine : rows[static_cast<size_t>(member.group.rank())]) {
      (void)Exchange(member, mine, counts, 2, placement);
    }
    EXPECT_TRUE(member.group.poisoned());
    EXPECT_EQ(member.exchange.failure().code(), ErrorCode::kInternal);
    EXPECT_NE(member.exchange.failure().message().find("rank 1 brought 3 rows"), std::string::npos);
    ++ended;
  });
  EXPECT_EQ(ended, 3);
}

TEST(TokenExchange, ARankThatNeverComesReleasesTheOthersByPoison) {
  constexpr int kRounds = 10, kFatal = 4;
  const auto placement = ExpertPlacement::Trivial(8, 0, 4).value();
  const std::vector<int32_t> counts = {3, 0, 3, 1};
  for (const bool between :
       {false, true}) {  // before its dispatch, or between that and its combine
    std::atomic<int> ended{0};
    // Rows outlive all ranks, as the contract wants: who has not seen the failure still reads them.
    std::vector<std::vector<Rows>> rows(4);
    for (int rank = 0; rank < 4; ++rank) {
      for (int round = 0; round < kRounds; ++round) {
        const int32_t count = counts[static_cast<size_t>(rank)];
        rows[static_cast<size_t>(rank)].push_back(MakeRows(rank, round, count, 2, placement));
      }
    }
    OnEveryRank(4, [&](Member& member) {
      const auto rank = static_cast<size_t>(member.group.rank());
      for (int round = 0; round < kRounds; ++round) {
        const Rows& mine = rows[rank][static_cast<size_t>(round)];
        if (rank != 2 || round != kFatal) {
          (void)Exchange(member, mine, counts, 2, placement);
          continue;
        }
        if (between) (void)Dispatch(member, mine, counts, 2, placement);
        member.group.Poison();
        break;
      }
      EXPECT_TRUE(member.group.poisoned());
      ++ended;
    });
    EXPECT_EQ(ended, 4);
  }
}

}  // namespace
}  // namespace hayate::comm
