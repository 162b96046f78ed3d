#include "kv/page_pool.h"

#include "base/check.h"

namespace hayate::kv {

PagePool::PagePool(int32_t num_pages) : is_free_(static_cast<size_t>(num_pages), 1) {
  CHECK_GE(num_pages, 2);
  is_free_[0] = 0;
  free_.reserve(static_cast<size_t>(num_pages - 1));
  for (int32_t page = num_pages - 1; page > 0; --page) free_.push_back(PageId{page});
}

std::optional<PageId> PagePool::Allocate() {
  if (free_.empty()) return std::nullopt;
  const PageId page = free_.back();
  free_.pop_back();
  is_free_[static_cast<size_t>(page.value)] = 0;
  return page;
}

void PagePool::Free(PageId page) {
  CHECK(page.value > 0 && page.value <= num_usable()) << page;
  CHECK(!IsFree(page)) << "page " << page << " is freed twice";
  is_free_[static_cast<size_t>(page.value)] = 1;
  free_.push_back(page);
}

}  // namespace hayate::kv
