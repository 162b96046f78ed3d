#pragma once
// Rows and cache addresses as a kernel sees them.

#include <cstdint>

#include "ops/attention/paged_attention.h"

namespace hayate::ops::sm90 {

// The row that owns a token: the last r with q_begin[r] <= token. One load where every row has one
// token.
__device__ inline int32_t RowOfToken(const AttentionRows& rows, int32_t token) {
  if (token < rows.num_rows && rows.q_begin[token] == token && rows.q_begin[token + 1] > token) {
    return token;
  }
  int32_t low = 0, high = rows.num_rows;  // q_begin[low] <= token < q_begin[high]
  while (high - low > 1) {
    const int32_t middle = (low + high) / 2;
    (rows.q_begin[middle] <= token ? low : high) = middle;
  }
  return low;
}

// One layer of the cache as K [Hkv, P, D] then V [Hkv, P, D] in every page.
template <typename T>
struct PagedCache {
  std::byte* base;
  int64_t page_stride;  // bytes
  int32_t page_tokens, num_kv_heads, head_dim;

  explicit PagedCache(const KvLayerView& view)
      : base(view.base),
        page_stride(view.page_stride),
        page_tokens(view.page_tokens),
        num_kv_heads(view.num_kv_heads),
        head_dim(view.head_dim) {}

  // The [P, D] keys of one head in one page.
  __device__ T* Keys(int32_t page, int32_t head) const {
    return reinterpret_cast<T*>(base + page * page_stride) + int64_t{head} * page_tokens * head_dim;
  }
  __device__ T* Values(int32_t page, int32_t head) const { return Keys(page, num_kv_heads + head); }
};

}  // namespace hayate::ops::sm90
