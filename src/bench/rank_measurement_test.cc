#include "bench/rank_measurement.h"

#include <gtest/gtest.h>

namespace hayate::bench {
namespace {

// How near the times are is for a machine without other work; here, that there are some. Four
// ranks may have to share cores.
TEST(MeasureRanks, TimesASkewedLoadInOrderAndWithRedundantExperts) {
  for (const int ranks : {2, 4}) {
    const auto measured =
        MeasureRanks(
            {.num_ranks = ranks, .rows = {40}, .repeats = 1, .most_even_rows = 2, .seed = 2})
            .value();
    ASSERT_EQ(measured.size(), 2u);
    for (const RankMeasurement& m : measured) {
      EXPECT_EQ(m.rows, 40);
      EXPECT_GT(m.foretold_us, 0) << ranks << " ranks, " << m.placement;
      EXPECT_GT(m.measured_us, 0);
      EXPECT_GE(m.imbalance, 1.0);
      EXPECT_LE(m.imbalance, ranks);
    }
    EXPECT_EQ(measured[1].placement, "redundant");
    EXPECT_LT(measured[1].imbalance, measured[0].imbalance);
  }
}

TEST(MeasureRanks, RefusesWhatCannotBeLaidOut) {
  EXPECT_EQ(MeasureRanks({.num_ranks = 3}).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(MeasureRanks({.rows = {}}).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(MeasureRanks({.rows = {0}}).status().code(), ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace hayate::bench
