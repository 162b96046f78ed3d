#include "comm/rank_layout.h"

#include <gtest/gtest.h>

#include <numeric>
#include <string>

namespace hayate::comm {
namespace {

std::string MessageOf(const RankLayoutOptions& options) {
  const Status status = RankLayout::Create(options).status();
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  return status.message();
}

TEST(RankLayout, TensorParallelRanksShareEveryRow) {
  const RankLayout layout = RankLayout::Create({.num_ranks = 4}).value();
  EXPECT_EQ(layout.attention_size(), 4);
  EXPECT_FALSE(layout.exchanges());
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(layout.dp_rank(rank), 0);
    EXPECT_EQ(layout.attention_rank(rank), rank);
  }
}

TEST(RankLayout, DpRanksAreNeighboursThatSplitHeads) {
  const RankLayout layout = RankLayout::Create({.num_ranks = 4, .dp_size = 2}).value();
  EXPECT_TRUE(layout.exchanges());
  EXPECT_EQ(layout.attention_size(), 2);
  EXPECT_EQ(layout.dp_rank(1), 0);
  EXPECT_EQ(layout.dp_rank(2), 1);
  EXPECT_EQ(layout.attention_rank(3), 1);
  EXPECT_EQ(layout.dp_rank_of_slot(5), 1);
}

TEST(RankLayout, EveryRowBelongsToOneRankWhateverTheCounts) {
  for (const auto& [ranks, dp] : {std::pair{6, 2}, {4, 4}, {5, 1}, {1, 1}}) {
    const RankLayout layout =
        RankLayout::Create({.num_ranks = ranks, .dp_size = dp, .ep_size = ranks}).value();
    for (int32_t count = 0; count < 9; ++count) {
      std::vector<int32_t> counts(static_cast<size_t>(dp));
      for (int d = 0; d < dp; ++d) counts[static_cast<size_t>(d)] = count * d + 1;
      std::vector<int32_t> per_rank(static_cast<size_t>(ranks));
      layout.SplitRows(counts, per_rank);
      for (int d = 0; d < dp; ++d) {
        const auto begin = per_rank.begin() + d * layout.attention_size();
        const auto end = begin + layout.attention_size();
        EXPECT_EQ(std::accumulate(begin, end, 0), counts[static_cast<size_t>(d)]);
        EXPECT_LE(*begin - *(end - 1), 1);
      }
    }
  }
}

TEST(RankLayout, RefusesWhatDoesNotFitAndNamesTheOption) {
  EXPECT_NE(MessageOf({.num_ranks = 0}).find("--tp-size 0"), std::string::npos);
  EXPECT_NE(MessageOf({.num_ranks = kMaxRanks + 1}).find("--tp-size"), std::string::npos);
  EXPECT_NE(MessageOf({.num_ranks = 4, .dp_size = 3}).find("--dp-size 3"), std::string::npos);
  EXPECT_NE(MessageOf({.num_ranks = 4, .dp_size = 0}).find("--dp-size 0"), std::string::npos);
  EXPECT_NE(MessageOf({.num_ranks = 4, .ep_size = 2}).find("--ep-size 2"), std::string::npos);
  EXPECT_NE(MessageOf({.num_ranks = 4, .dp_size = 2, .ep_size = 1}).find("--ep-size must be 4"),
            std::string::npos);
}

TEST(RankLayout, OneRankExchangesWithNobody) {
  EXPECT_FALSE(RankLayout::Create({.num_ranks = 1, .ep_size = 1}).value().exchanges());
  EXPECT_TRUE(RankLayout::Create({.num_ranks = 2, .ep_size = 2}).value().exchanges());
}

}  // namespace
}  // namespace hayate::comm
