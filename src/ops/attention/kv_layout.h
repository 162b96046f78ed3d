#pragma once
// Addresses inside one layer of one page: K [Hkv, D, P], V [Hkv, P, D], each followed by its scales
// [Hkv, P] fp32 where the elements are int8.

#include "ops/attention/paged_attention.h"

namespace hayate::ops::attention {

// One kv head in one page. Scales are null unless the dtype is int8.
struct PageHead {
  std::byte* k;               // [D, P]
  std::byte* v;               // [P, D]
  float* k_scales = nullptr;  // [P]
  float* v_scales = nullptr;
};

inline PageHead HeadOfPage(const KvLayerView& cache, int32_t page, int32_t head) {
  std::byte* base = cache.base + page * cache.page_stride;
  const int64_t head_bytes =
      int64_t{cache.page_tokens} * cache.head_dim * Info(cache.dtype).block_bytes;
  const int64_t side =
      KvLayerPageBytes(cache.dtype, cache.page_tokens, cache.num_kv_heads, cache.head_dim) / 2;
  PageHead result{base + head * head_bytes, base + side + head * head_bytes};
  if (cache.dtype == DType::kI8) {
    const int64_t scales = cache.num_kv_heads * head_bytes;
    const int64_t first = int64_t{head} * cache.page_tokens;
    result.k_scales = reinterpret_cast<float*>(base + scales) + first;
    result.v_scales = reinterpret_cast<float*>(base + side + scales) + first;
  }
  return result;
}

// Element `index` of cache memory as fp32, without its scale.
float LoadElement(DType dtype, const std::byte* data, int64_t index);

}  // namespace hayate::ops::attention
