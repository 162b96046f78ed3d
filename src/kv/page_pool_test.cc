#include "kv/page_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace hayate::kv {
namespace {

TEST(PagePool, HandsOutEveryPageOnceAndNeverTheScratchPage) {
  PagePool pool(5);
  std::set<int32_t> pages;
  while (const auto page = pool.Allocate()) pages.insert(page->value);
  EXPECT_EQ(pages, (std::set<int32_t>{1, 2, 3, 4}));
  EXPECT_EQ(pool.num_free(), 0);
}

TEST(PagePool, ReusesThePageThatWasFreedLast) {
  PagePool pool(5);
  const PageId first = *pool.Allocate();
  const PageId second = *pool.Allocate();
  pool.Free(second);
  pool.Free(first);
  EXPECT_EQ(pool.Allocate(), first);
}

TEST(PagePoolDeathTest, RefusesToFreeAPageTwice) {
  PagePool pool(3);
  const PageId page = *pool.Allocate();
  pool.Free(page);
  EXPECT_DEATH(pool.Free(page), "freed twice");
  EXPECT_DEATH(pool.Free(kScratchPage), "page.value > 0");
}

}  // namespace
}  // namespace hayate::kv
