#include "ops/attention/kernels.h"
#include "ops/attention/kv_layout.h"
#include "tensor/float16.h"

namespace hayate::ops {
namespace attention {

float LoadElement(DType dtype, const std::byte* data, int64_t index) {
  switch (dtype) {
    case DType::kF32:
      return reinterpret_cast<const float*>(data)[index];
    case DType::kF16:
      return F16ToFloat(reinterpret_cast<const uint16_t*>(data)[index]);
    case DType::kBF16:
      return Bf16ToFloat(reinterpret_cast<const uint16_t*>(data)[index]);
    case DType::kI8:
      return static_cast<float>(reinterpret_cast<const int8_t*>(data)[index]);
    default:
      CHECK(false) << "not a cache type: " << Info(dtype).name;
  }
  return 0.0f;
}

void KvWriteWith(const Kernels& kernels, const KvWriteArgs& args) {
  const KvLayerView& cache = args.cache;
  const int32_t d = cache.head_dim;
  const int64_t element = Info(cache.dtype).block_bytes;
  const float* k = args.k.as<float>();
  const float* v = args.v.as<float>();
  for (int32_t r = 0; r < args.rows.num_rows; ++r) {
    const int32_t* pages = args.rows.PagesOf(r);
    for (int32_t t = args.rows.q_begin[r]; t < args.rows.q_begin[r + 1]; ++t) {
      const int32_t position = args.positions[t];
      const int32_t page = pages[position / cache.page_tokens];
      DCHECK_GE(page, 0) << "row " << r << " writes position " << position;
      const int32_t slot = position % cache.page_tokens;
      for (int32_t h = 0; h < cache.num_kv_heads; ++h) {
        const PageHead head = HeadOfPage(cache, page, h);
        const float k_scale = kernels.store(cache.dtype, k + t * args.k_row_stride + h * d, d,
                                            head.k + slot * element, cache.page_tokens);
        const float v_scale = kernels.store(cache.dtype, v + t * args.v_row_stride + h * d, d,
                                            head.v + int64_t{slot} * d * element, 1);
        if (cache.dtype == DType::kI8) {
          head.k_scales[slot] = k_scale;
          head.v_scales[slot] = v_scale;
        }
      }
    }
  }
}

}  // namespace attention

int64_t KvLayerPageBytes(DType dtype, int32_t page_tokens, int32_t num_kv_heads, int32_t head_dim) {
  const int64_t entries = int64_t{page_tokens} * num_kv_heads;
  const int64_t scale_bytes = dtype == DType::kI8 ? int64_t{sizeof(float)} : 0;
  return 2 * entries * (int64_t{head_dim} * Info(dtype).block_bytes + scale_bytes);
}

}  // namespace hayate::ops
