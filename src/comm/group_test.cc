#include "comm/group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <numeric>
#include <thread>

#include "base/rng.h"
#include "comm/detail/arrival.h"

namespace hayate::comm {
namespace {

TensorView Floats(std::vector<float>& values) {
  return {reinterpret_cast<std::byte*>(values.data()), DType::kF32,
          Shape{static_cast<int64_t>(values.size())}};
}

void OnEveryRank(int num_ranks, const std::function<void(Group&)>& body) {
  auto group = MakeLocalGroup(num_ranks).value();
  std::vector<std::jthread> threads;
  for (auto& member : group) {
    threads.emplace_back([&body, rank = member.get()] { body(*rank); });
  }
}

std::vector<float> Part(int rank, int exchange, int64_t count) {
  Rng rng(static_cast<uint64_t>(exchange) * 1000 + static_cast<uint64_t>(rank));
  std::vector<float> part(static_cast<size_t>(count));
  for (float& value : part) value = rng.NextFloat() - 0.5f;
  return part;
}

// Sums in rank order, which is the order that the contract fixes.
std::vector<float> ExpectedSum(int num_ranks, int exchange, int64_t count) {
  std::vector<float> sum = Part(0, exchange, count);
  for (int rank = 1; rank < num_ranks; ++rank) {
    const std::vector<float> part = Part(rank, exchange, count);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  return sum;
}

TEST(LocalGroup, SumsInRankOrderOnEveryRankForEverySize) {
  // Around the border between slots (256 floats) and ranges, lengths that no rank count divides.
  const std::vector<int64_t> counts = {1, 7, 255, 256, 257, 576, 50001, 3, 40000};
  for (const int num_ranks : {1, 2, 3, 5}) {
    OnEveryRank(num_ranks, [&](Group& group) {
      for (int exchange = 0; exchange < static_cast<int>(counts.size()); ++exchange) {
        const int64_t count = counts[static_cast<size_t>(exchange)];
        std::vector<float> data = Part(group.rank(), exchange, count);
        group.AllReduce({}, Floats(data));
        EXPECT_EQ(data, ExpectedSum(num_ranks, exchange, count))
            << num_ranks << " ranks, " << count;
      }
    });
  }
}

TEST(LocalGroup, ManyExchangesOfMixedKindsStayInStep) {
  constexpr int kRanks = 3;
  OnEveryRank(kRanks, [](Group& group) {
    Rng rng(7);  // the same choices on every rank
    for (int exchange = 0; exchange < 400; ++exchange) {
      const int64_t count = rng.Below(2) == 0 ? 200 + rng.Below(3000) : 1 + rng.Below(64);
      if (rng.Below(3) == 0) {
        const std::vector<float> part = Part(group.rank(), exchange, count);
        std::vector<float> all(part.size() * kRanks);
        group.AllGather({}, Floats(const_cast<std::vector<float>&>(part)), Floats(all));
        for (int r = 0; r < kRanks; ++r) {
          const std::vector<float> expected = Part(r, exchange, count);
          EXPECT_TRUE(std::equal(expected.begin(), expected.end(), all.begin() + r * count));
        }
      } else {
        std::vector<float> data = Part(group.rank(), exchange, count);
        group.AllReduce({}, Floats(data));
        EXPECT_EQ(data, ExpectedSum(kRanks, exchange, count));
      }
    }
  });
}

TEST(LocalGroup, BarrierPublishesPlainWrites) {
  constexpr int kRanks = 4;
  int values[kRanks] = {};
  OnEveryRank(kRanks, [&](Group& group) {
    for (int round = 1; round <= 200; ++round) {
      values[group.rank()] = round;
      group.Barrier({});
      EXPECT_EQ(std::accumulate(values, values + kRanks, 0), kRanks * round);
      group.Barrier({});
    }
  });
}

TEST(LocalGroup, MoreRanksThanCoresMakeProgress) {
  OnEveryRank(16, [](Group& group) {
    for (int exchange = 0; exchange < 20; ++exchange) {
      std::vector<float> data = Part(group.rank(), exchange, 33);
      group.AllReduce({}, Floats(data));
      EXPECT_EQ(data, ExpectedSum(16, exchange, 33));
    }
  });
}

TEST(LocalGroup, PoisonReleasesRanksThatWait) {
  std::atomic<int> released{0};
  OnEveryRank(3, [&](Group& group) {
    if (group.rank() == 0) {
      group.Poison();  // never arrives
    } else {
      std::vector<float> data(16, 1.0f);
      group.AllReduce({}, Floats(data));
      std::vector<float> large(40000, 1.0f);
      group.AllReduce({}, Floats(large));
      group.Barrier({});
    }
    EXPECT_TRUE(group.poisoned());
    ++released;
  });
  EXPECT_EQ(released, 3);
}

TEST(LocalGroup, RefusesSizesOutsideItsBounds) {
  EXPECT_EQ(MakeLocalGroup(0).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(MakeLocalGroup(kMaxLocalRanks + 1).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(MakeLocalGroup(2).value()[1]->rank(), 1);
}

TEST(Arrival, CountsMayWrapAround) {
  Arrival arrival;
  const std::atomic<bool> poisoned{false};
  Arrive(arrival, 0xFFFFFFFFu);
  WaitFor(arrival, 0xFFFFFFFEu, poisoned);
  std::jthread later([&] { Arrive(arrival, 1); });
  WaitFor(arrival, 1, poisoned);  // 1 comes after 0xFFFFFFFF
}

}  // namespace
}  // namespace hayate::comm
