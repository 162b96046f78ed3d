#pragma once
// The pages of one cache group, as numbers: which are free. The bytes live with the workers.
// Owner: engine thread.

#include <cstdint>
#include <optional>
#include <vector>

#include "core/ids.h"

namespace hayate::kv {

class PagePool {
 public:
  // num_pages counts page 0, which is scratch and never handed out; at least 2.
  explicit PagePool(int32_t num_pages);

  // O(1). The page freed last comes back first: its bytes are the warmest. Nothing when none is
  // free.
  std::optional<PageId> Allocate();
  // The page must be allocated; freeing it twice is a CHECK failure.
  void Free(PageId page);

  bool IsFree(PageId page) const { return is_free_[static_cast<size_t>(page.value)] != 0; }
  // Pages that can be handed out at all: without the scratch page.
  int32_t num_usable() const { return static_cast<int32_t>(is_free_.size()) - 1; }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }

 private:
  std::vector<PageId> free_;      // a stack
  std::vector<uint8_t> is_free_;  // [num_pages]
};

}  // namespace hayate::kv
