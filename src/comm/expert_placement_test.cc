#include "comm/expert_placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <set>
#include <string>

#include "base/rng.h"

namespace hayate::comm {
namespace {

// What every placement must be: all experts placed, none twice on a rank, the indexes consistent.
void ExpectWhole(const ExpertPlacement& placement) {
  std::set<int32_t> seen;
  for (int rank = 0; rank < placement.num_ranks(); ++rank) {
    const auto experts = placement.of_rank(rank);
    EXPECT_EQ(std::ssize(experts), placement.per_rank());
    const std::set<int32_t> own(experts.begin(), experts.end());
    EXPECT_EQ(own.size(), experts.size()) << "rank " << rank << " holds an expert twice";
    seen.insert(own.begin(), own.end());
  }
  EXPECT_EQ(std::ssize(seen), placement.num_experts());
  int32_t replicas = 0;
  for (int32_t e = 0; e < placement.num_experts(); ++e) {
    for (const int32_t physical : placement.replicas(e)) {
      ++replicas;
      EXPECT_EQ(placement.logical_of_physical()[static_cast<size_t>(physical)], e);
      EXPECT_EQ(placement.of_rank(
                    placement.rank_of(physical))[static_cast<size_t>(placement.place_of(physical))],
                e);
    }
  }
  EXPECT_EQ(replicas, placement.num_physical());
}

double Fullest(const ExpertPlacement& placement, const std::vector<int64_t>& counts) {
  return std::ranges::max(placement.LoadPerRank(counts));
}

// The least that the fullest rank can have, over all numbers of replicas and all ways to place
// them.
double BestFullest(const std::vector<int64_t>& counts, int num_redundant, int num_ranks) {
  const auto num_experts = static_cast<int>(counts.size());
  const int per_rank = (num_experts + num_redundant) / num_ranks;
  double best = std::numeric_limits<double>::infinity();
  std::vector<uint32_t> ranks_of(counts.size());  // a bit per rank
  std::vector<int> held(static_cast<size_t>(num_ranks), 0);
  const std::function<void(size_t)> place = [&](size_t e) {
    if (e == counts.size()) {
      if (std::ranges::any_of(held, [&](int h) { return h != per_rank; })) return;
      std::vector<double> load(static_cast<size_t>(num_ranks), 0.0);
      for (size_t i = 0; i < counts.size(); ++i) {
        for (int r = 0; r < num_ranks; ++r) {
          if ((ranks_of[i] >> r & 1) == 0) continue;
          load[static_cast<size_t>(r)] +=
              static_cast<double>(counts[i]) / std::popcount(ranks_of[i]);
        }
      }
      best = std::min(best, std::ranges::max(load));
      return;
    }
    for (uint32_t set = 1; set < 1u << num_ranks; ++set) {
      bool fits = true;
      for (int r = 0; r < num_ranks; ++r) {
        held[static_cast<size_t>(r)] += static_cast<int>(set >> r & 1);
        fits &= held[static_cast<size_t>(r)] <= per_rank;
      }
      ranks_of[e] = set;
      if (fits) place(e + 1);
      for (int r = 0; r < num_ranks; ++r)
        held[static_cast<size_t>(r)] -= static_cast<int>(set >> r & 1);
    }
  };
  place(0);
  return best;
}

std::vector<int64_t> SkewedCounts(Rng& rng, int num_experts) {
  std::vector<int64_t> counts;
  for (int e = 0; e < num_experts; ++e) {
    const int64_t base = 1 + rng.Below(100);
    counts.push_back(rng.Below(4) == 0 ? base * (1 + rng.Below(40)) : base);
  }
  return counts;
}

TEST(ExpertPlacement, TrivialPlacesInOrderAndRepeatsFromTheFirst) {
  const ExpertPlacement placement = ExpertPlacement::Trivial(4, 2, 3).value();
  ExpectWhole(placement);
  EXPECT_EQ(std::vector<int32_t>(placement.of_rank(2).begin(), placement.of_rank(2).end()),
            (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(placement.ReplicaFor(0, 7), 4);
  EXPECT_EQ(placement.ReplicaFor(0, 8), 0);
  EXPECT_EQ(placement.ReplicaFor(3, 7), 3);
}

TEST(ExpertPlacement, BalancedPlacesEveryExpertAndFillsRanksEqually) {
  Rng rng(1);
  for (int round = 0; round < 400; ++round) {
    const int num_ranks = rng.Between(1, 8), per_rank = rng.Between(1, 9);
    const int num_physical = num_ranks * per_rank;
    const int num_experts = rng.Between(std::max(1, per_rank), num_physical);
    const std::vector<int64_t> counts = SkewedCounts(rng, num_experts);
    const auto placement =
        ExpertPlacement::Balanced(counts, num_physical - num_experts, num_ranks).value();
    ExpectWhole(placement);
    const std::vector<double> load = placement.LoadPerRank(counts);
    EXPECT_NEAR(std::accumulate(load.begin(), load.end(), 0.0),
                static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0})),
                1e-6);
  }
}

// Greedy in the number of replicas, so a case can be found where another number is better; on
// average little is lost.
TEST(ExpertPlacement, BalancedIsCloseToTheBestThatThereIs) {
  Rng rng(2);
  double worst = 1.0, sum = 0.0;
  int num_cases = 0;
  for (int round = 0; round < 80; ++round) {
    const int num_ranks = rng.Between(2, 3), per_rank = rng.Between(2, 3);
    const int num_redundant = rng.Between(0, 2);
    const int num_experts = num_ranks * per_rank - num_redundant;
    if (num_experts < per_rank) continue;
    const std::vector<int64_t> counts = SkewedCounts(rng, num_experts);
    const auto placement = ExpertPlacement::Balanced(counts, num_redundant, num_ranks).value();
    const double ratio = Fullest(placement, counts) / BestFullest(counts, num_redundant, num_ranks);
    EXPECT_GE(ratio, 1.0 - 1e-9);
    worst = std::max(worst, ratio);
    sum += ratio;
    ++num_cases;
  }
  EXPECT_LE(worst, 1.5);
  EXPECT_LE(sum / num_cases, 1.05);
}

TEST(ExpertPlacement, RedundantCopiesOfTheHottestFlattenTheLoad) {
  std::vector<int64_t> counts(64);
  for (size_t e = 0; e < counts.size(); ++e) counts[e] = 100000 / static_cast<int64_t>(e + 1);
  const double mean =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), int64_t{0})) / 16;
  const auto trivial = ExpertPlacement::Trivial(64, 0, 16).value();
  const auto placed = ExpertPlacement::Balanced(counts, 0, 16).value();
  const auto redundant = ExpertPlacement::Balanced(counts, 16, 16).value();
  EXPECT_GT(Fullest(trivial, counts), 6 * mean);
  EXPECT_GT(Fullest(placed, counts), 3 * mean);  // the hottest expert alone
  EXPECT_LT(Fullest(redundant, counts), 1.05 * mean);
}

TEST(ExpertPlacement, EqualCountsGiveTheSamePlacementEveryTime) {
  const std::vector<int64_t> counts(24, 10);
  const auto a = ExpertPlacement::Balanced(counts, 8, 8).value();
  const auto b = ExpertPlacement::Balanced(counts, 8, 8).value();
  EXPECT_TRUE(std::ranges::equal(a.logical_of_physical(), b.logical_of_physical()));
  const std::vector<int64_t> nothing(24, 0);
  ExpectWhole(ExpertPlacement::Balanced(nothing, 8, 8).value());
}

// The same sets of experts on the ranks, and fewer moves than if nobody looked.
TEST(ExpertPlacement, FollowingKeepsSetsAndLetsMostExpertsStay) {
  Rng rng(3);
  int64_t moved = 0, naive = 0;
  for (int round = 0; round < 200; ++round) {
    const int num_ranks = rng.Between(1, 6), per_rank = rng.Between(1, 8);
    const int num_experts = rng.Between(per_rank, num_ranks * per_rank);
    const int redundant = num_ranks * per_rank - num_experts;
    std::vector<int64_t> counts = SkewedCounts(rng, num_experts);
    const auto before = ExpertPlacement::Balanced(counts, redundant, num_ranks).value();
    for (int64_t& count : counts) count += rng.Between(0, 300);
    const auto after = ExpertPlacement::Balanced(counts, redundant, num_ranks).value();
    const auto following = after.Following(before);
    ExpectWhole(following);
    EXPECT_DOUBLE_EQ(following.Balance(counts), after.Balance(counts));
    const auto sets = [&](const ExpertPlacement& placement) {
      std::multiset<std::set<int32_t>> all;
      for (int rank = 0; rank < num_ranks; ++rank) {
        const auto held = placement.of_rank(rank);
        all.insert({held.begin(), held.end()});
      }
      return all;
    };
    EXPECT_EQ(sets(following), sets(after));
    const auto old = before.logical_of_physical();
    for (size_t p = 0; p < old.size(); ++p) {
      moved += following.logical_of_physical()[p] != old[p];
      naive += after.logical_of_physical()[p] != old[p];
    }
    EXPECT_TRUE(std::ranges::equal(before.Following(before).logical_of_physical(), old));
  }
  EXPECT_LT(moved, naive);
}

TEST(ExpertPlacement, BalanceIsTheMeanOverTheFullest) {
  const auto placement = ExpertPlacement::Trivial(4, 0, 2).value();
  const auto balance = [&](std::vector<int64_t> counts) { return placement.Balance(counts); };
  EXPECT_DOUBLE_EQ(balance({1, 1, 1, 1}), 1.0);
  EXPECT_DOUBLE_EQ(balance({3, 0, 0, 0}), 0.5);
  EXPECT_DOUBLE_EQ(balance({2, 1, 1, 0}), 2.0 / 3);
  EXPECT_DOUBLE_EQ(balance({0, 0, 0, 0}), 1.0);
}

TEST(ExpertPlacement, RefusesWhatCannotBePlaced) {
  const auto message = [](const Result<ExpertPlacement>& result) {
    EXPECT_EQ(result.status().code(), ErrorCode::kInvalidArgument);
    return result.status().message();
  };
  EXPECT_NE(message(ExpertPlacement::Trivial(256, 3, 4)).find("--ep-num-redundant-experts 4"),
            std::string::npos);
  EXPECT_NE(message(ExpertPlacement::Trivial(4, 8, 2)).find("8 redundant"), std::string::npos);
  EXPECT_NE(message(ExpertPlacement::Create(3, 2, {0, 1, 2, 3})).find("expert 3 of 3"),
            std::string::npos);
  EXPECT_NE(
      message(ExpertPlacement::Create(3, 2, {0, 0, 1, 2})).find("rank 0 holds expert 0 twice"),
      std::string::npos);
  EXPECT_NE(message(ExpertPlacement::Create(3, 2, {0, 1, 0, 1})).find("expert 2 is on no rank"),
            std::string::npos);
  const std::vector<int64_t> negative = {1, -1};
  EXPECT_FALSE(ExpertPlacement::Balanced(negative, 0, 2).ok());
  EXPECT_FALSE(ExpertPlacement::Trivial(0, 0, 1).ok());
}

TEST(ExpertPlan, PlacesByMapByCountsOrInOrder) {
  ExpertPlan plan{.num_ranks = 2, .num_redundant = 2};
  EXPECT_EQ(plan.Place(7, 4).value().of_rank(1)[2], 1);
  plan.logical_count = {{}, {1, 1, 1, 9}};
  EXPECT_EQ(plan.Place(1, 4).value().replicas(3).size(), 2u);
  EXPECT_NE(plan.Place(0, 4).status().message().find("layer 0"), std::string::npos);
  EXPECT_FALSE(plan.Place(2, 4).ok());
  plan.logical_count.clear();
  plan.physical_to_logical = {{3, 2, 1, 3, 0, 1}};
  EXPECT_EQ(plan.Place(0, 4).value().replicas(3).size(), 2u);
  EXPECT_NE(plan.Place(0, 5).status().message().find("6 entries"), std::string::npos);
  EXPECT_FALSE(plan.Place(1, 4).ok());
}

}  // namespace
}  // namespace hayate::comm
