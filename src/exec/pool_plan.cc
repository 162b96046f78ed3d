#include "exec/pool_plan.h"

#include <algorithm>

#include "base/align.h"
#include "base/error.h"

namespace hayate::exec {
namespace {

constexpr int64_t kScratchPages = 1;
// State groups: the state of a slot's sequence, and of one before it that a step in flight may
// still touch.
constexpr int64_t kStatesPerSlot = 2;

int64_t PagesOf(const CacheGroup& group, const PoolRequest& request, int32_t page_tokens,
                int32_t max_chunk_tokens) {
  const int64_t full = CeilDiv<int64_t>(request.total_tokens, page_tokens);
  switch (group.kind) {
    case CacheKind::kFull:
    case CacheKind::kCompressed:
      return full;
    case CacheKind::kWindow: {
      const int64_t per_slot =
          CeilDiv<int64_t>(int64_t{group.window} + max_chunk_tokens, page_tokens) + 2;
      return std::min(full, 2 * per_slot * request.max_slots);
    }
    case CacheKind::kState:
      return kStatesPerSlot * request.max_slots;
  }
  CHECK(false) << "unknown CacheKind";
}

}  // namespace

std::vector<int32_t> PlanPools(const CacheLayout& layout, const PoolRequest& request,
                               int32_t max_chunk_tokens) {
  std::vector<int32_t> pages;
  for (const CacheGroup& group : layout.groups) {
    const int64_t count = PagesOf(group, request, layout.page_tokens, max_chunk_tokens);
    CHECK_LE(count, kMaxPoolPages) << group.name;
    pages.push_back(static_cast<int32_t>(count + kScratchPages));
  }
  return pages;
}

int64_t PoolBytes(const CacheLayout& layout, const std::vector<int32_t>& pages) {
  int64_t bytes = 0;
  for (size_t g = 0; g < pages.size(); ++g) bytes += pages[g] * layout.groups[g].page_bytes;
  return bytes;
}

Result<int64_t> LargestPool(const CacheLayout& layout, int64_t budget_bytes, int64_t min_tokens,
                            int32_t max_slots, int32_t max_chunk_tokens) {
  const auto bytes_for = [&](int64_t tokens) {
    return PoolBytes(layout, PlanPools(layout, {tokens, max_slots}, max_chunk_tokens));
  };
  if (CeilDiv<int64_t>(min_tokens, layout.page_tokens) > kMaxPoolPages) {
    return Error(ErrorCode::kResourceExhausted,
                 "one sequence of {} tokens needs more than {} KV pages; lower --context-length",
                 min_tokens, kMaxPoolPages);
  }
  if (bytes_for(min_tokens) > budget_bytes) {
    return Error(ErrorCode::kResourceExhausted,
                 "a KV pool for one sequence of {} tokens takes {} MiB a rank, {} MiB are free; "
                 "lower --context-length or raise --mem-fraction-static",
                 min_tokens, bytes_for(min_tokens) >> 20, budget_bytes >> 20);
  }
  // Bytes grow with tokens: bisect over whole pages.
  int64_t low = CeilDiv<int64_t>(min_tokens, layout.page_tokens);
  int64_t high = kMaxPoolPages;
  while (low + 1 < high) {
    const int64_t middle = low + (high - low) / 2;
    (bytes_for(middle * layout.page_tokens) <= budget_bytes ? low : high) = middle;
  }
  return low * layout.page_tokens;
}

}  // namespace hayate::exec
