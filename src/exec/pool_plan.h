#pragma once
// How many pages each cache group's pool gets.

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "tensor/cache_layout.h"

namespace hayate::exec {

// The most pages that a pool may have, far below what an int32 page id can name.
inline constexpr int64_t kMaxPoolPages = int64_t{1} << 30;

struct PoolRequest {
  // Tokens that the full groups must hold, at most kMaxPoolPages pages; the other groups follow
  // from it.
  int64_t total_tokens = 0;
  int32_t max_slots = 0;
};

// Pages per group, counting the scratch page. A window group gets what the running sequences can
// need (window plus a chunk each) and as much again for the prefix cache, but never more than a
// full group.
std::vector<int32_t> PlanPools(const CacheLayout& layout, const PoolRequest& request,
                               int32_t max_chunk_tokens);

// Bytes of all pools of one rank: Σ pages × page_bytes.
int64_t PoolBytes(const CacheLayout& layout, const std::vector<int32_t>& pages);

// The most total_tokens whose pools fit into `budget_bytes` a rank; kResourceExhausted when not
// even one sequence of `min_tokens` fits, saying by how much.
Result<int64_t> LargestPool(const CacheLayout& layout, int64_t budget_bytes, int64_t min_tokens,
                            int32_t max_slots, int32_t max_chunk_tokens);

}  // namespace hayate::exec
