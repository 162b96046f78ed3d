#include "exec/pool_plan.h"

#include <gtest/gtest.h>

#include <limits>

namespace hayate::exec {
namespace {

constexpr int32_t kChunk = 100;

CacheLayout FullAndWindow(int32_t window) {
  CacheLayout layout{.page_tokens = 32};
  layout.groups.push_back({.name = "kv", .kind = CacheKind::kFull, .page_bytes = 1000});
  layout.groups.push_back(
      {.name = "window", .kind = CacheKind::kWindow, .window = window, .page_bytes = 500});
  return layout;
}

TEST(PlanPools, RoundsUpToPagesAndAddsTheScratchPage) {
  EXPECT_EQ(PlanPools(FullAndWindow(64), {33, 1000}, kChunk), (std::vector<int32_t>{3, 3}));
}

TEST(PlanPools, AWindowGroupGetsTwiceWhatTheSlotsSeeAndNeverMoreThanAFullOne) {
  // ⌈(64 + 100) / 32⌉ + 2 = 8 pages a slot.
  EXPECT_EQ(PlanPools(FullAndWindow(64), {32'000, 4}, kChunk), (std::vector<int32_t>{1001, 65}));
  const int32_t huge = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(PlanPools(FullAndWindow(huge), {32'000, 4}, kChunk),
            (std::vector<int32_t>{1001, 1001}));
}

TEST(LargestPool, FitsTheBudgetAndOnePageMoreWouldNot) {
  const CacheLayout layout = FullAndWindow(64);
  for (const int64_t budget : {100'000, 123'456, 9'999'999}) {
    const int64_t tokens = LargestPool(layout, budget, 64, 4, kChunk).value();
    EXPECT_EQ(tokens % 32, 0);
    EXPECT_LE(PoolBytes(layout, PlanPools(layout, {tokens, 4}, kChunk)), budget);
    EXPECT_GT(PoolBytes(layout, PlanPools(layout, {tokens + 32, 4}, kChunk)), budget);
  }
}

TEST(LargestPool, StopsAtWhatPageIdsCanNameHoweverLargeTheBudget) {
  const int64_t budget = std::numeric_limits<int64_t>::max();
  const int64_t tokens = LargestPool(FullAndWindow(64), budget, 64, 4, kChunk).value();
  EXPECT_LE(tokens / 32, kMaxPoolPages);
  EXPECT_GT(tokens / 32, kMaxPoolPages / 2);
}

TEST(LargestPool, SaysHowMuchOneSequenceWouldTake) {
  const auto pool = LargestPool(FullAndWindow(64), 1 << 20, 1'000'000, 4, kChunk);
  ASSERT_FALSE(pool.ok());
  EXPECT_EQ(pool.status().code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(pool.status().message().find("1000000 tokens"), std::string::npos);
  CacheLayout one_token_pages = FullAndWindow(64);
  one_token_pages.page_tokens = 1;
  const int64_t context = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(LargestPool(one_token_pages, 1 << 20, context, 4, kChunk).status().code(),
            ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace hayate::exec
