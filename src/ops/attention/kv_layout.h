#pragma once
// Addresses inside one layer of one page: K [Hkv, P, D], V [Hkv, P, D], each followed by its scales
// [Hkv, P] fp32 where the elements are int8.

#include "ops/attention/paged_attention.h"

namespace hayate::ops::attention {

// K and V of one kv head in one page. Scales are null unless the dtype is int8.
template <typename Byte>
struct PageHead {
  Byte* k;                   // [P, D]
  Byte* v;                   // [P, D]
  Byte* k_scales = nullptr;  // [P] fp32
  Byte* v_scales = nullptr;
};

inline int64_t SideBytes(const KvLayerView& cache) {
  return KvLayerPageBytes(cache.dtype, cache.page_tokens, cache.num_kv_heads, cache.head_dim) / 2;
}

inline PageHead<std::byte> HeadOfPage(const KvLayerView& cache, int32_t page, int32_t head) {
  std::byte* base = cache.base + page * cache.page_stride;
  const int64_t head_bytes =
      int64_t{cache.page_tokens} * cache.head_dim * Info(cache.dtype).block_bytes;
  const int64_t side = SideBytes(cache);
  PageHead<std::byte> result{base + head * head_bytes, base + side + head * head_bytes};
  if (cache.dtype == DType::kI8) {
    const int64_t scales = cache.num_kv_heads * head_bytes +
                           int64_t{head} * cache.page_tokens * int64_t{sizeof(float)};
    result.k_scales = base + scales;
    result.v_scales = base + side + scales;
  }
  return result;
}

}  // namespace hayate::ops::attention
