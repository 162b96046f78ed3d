#include "models/layers/head_shard.h"

#include <gtest/gtest.h>

namespace hayate::models {
namespace {

TEST(SplitUnits, PiecesCoverTheAxisAndDifferByOneUnitAtMost) {
  for (const int64_t count : {1, 9, 64, 160, 200, 1536}) {
    for (const int64_t unit : {1, 16, 32, 256}) {
      for (const int num_ranks : {1, 2, 3, 7}) {
        int64_t at = 0;
        for (int rank = 0; rank < num_ranks; ++rank) {
          const Range range = SplitUnits(count, unit, rank, num_ranks);
          EXPECT_EQ(range.begin, at);
          EXPECT_TRUE(range.end == count || range.end % unit == 0);
          EXPECT_LE(range.size(), SplitUnits(count, unit, 0, num_ranks).size());
          at = range.end;
        }
        EXPECT_EQ(at, count);
      }
    }
  }
}

TEST(SplitHeads, ARankHoldsTheKeyValueHeadsOfItsQueryHeads) {
  for (const auto& [heads, kv_heads] : {std::pair{9, 3}, {4, 4}, {6, 1}, {32, 8}}) {
    const int group = heads / kv_heads;
    for (int num_ranks = 1; num_ranks <= heads + 2; ++num_ranks) {
      for (int rank = 0; rank < num_ranks; ++rank) {
        const HeadShard shard = SplitHeads(heads, kv_heads, 1, rank, num_ranks);
        for (int64_t h = shard.query.begin; h < shard.query.end; ++h) {
          // The rule that ops::PagedAttention applies to the rank's own numbering.
          const int64_t local = (h - shard.query.begin + shard.group_offset) / group;
          EXPECT_EQ(shard.kv.begin + local, h / group);
          EXPECT_LT(local, shard.kv.size());
        }
        EXPECT_EQ(shard.query.size() == 0, shard.kv.size() == 0);
      }
    }
  }
}

TEST(SplitHeads, NineHeadsOverTwoRanksShareTheMiddleGroup) {
  const HeadShard first = SplitHeads(9, 3, 1, 0, 2), second = SplitHeads(9, 3, 1, 1, 2);
  EXPECT_EQ(first.query.size(), 5);
  EXPECT_EQ(first.kv.size(), 2);
  EXPECT_EQ(second.query.size(), 4);
  EXPECT_EQ(second.kv.begin, 1);
  EXPECT_EQ(second.group_offset, 2);
}

}  // namespace
}  // namespace hayate::models
