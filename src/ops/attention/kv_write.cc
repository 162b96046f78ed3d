#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/attention/kv_layout.h"
#include "tensor/float16.h"

namespace hayate::ops {
namespace {

// max |x| / 127, round to nearest even. A row with NaN or infinity gets the scale NaN.
float QuantizeHead(const float* x, int32_t d, int8_t* out) {
  float max = 0.0f;
  bool finite = true;
  for (int32_t i = 0; i < d; ++i) {
    finite &= std::isfinite(x[i]);
    max = std::max(max, std::fabs(x[i]));
  }
  const float inverse = finite && max >= 1e-30f ? 127.0f / max : 0.0f;
  for (int32_t i = 0; i < d; ++i) {
    out[i] = finite ? static_cast<int8_t>(std::nearbyint(x[i] * inverse)) : int8_t{0};
  }
  return finite ? max / 127.0f : NAN;
}

void StoreHead(DType dtype, const float* x, int32_t d, std::byte* out, std::byte* scale) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, x, static_cast<size_t>(d) * sizeof(float));
      return;
    case DType::kF16:
      for (int32_t i = 0; i < d; ++i) reinterpret_cast<uint16_t*>(out)[i] = FloatToF16(x[i]);
      return;
    case DType::kBF16:
      for (int32_t i = 0; i < d; ++i) reinterpret_cast<uint16_t*>(out)[i] = FloatToBf16(x[i]);
      return;
    case DType::kI8:
      *reinterpret_cast<float*>(scale) = QuantizeHead(x, d, reinterpret_cast<int8_t*>(out));
      return;
    default:
      CHECK(false) << "not a cache type: " << Info(dtype).name;
  }
}

}  // namespace

int64_t KvLayerPageBytes(DType dtype, int32_t page_tokens, int32_t num_kv_heads, int32_t head_dim) {
  const int64_t entries = int64_t{page_tokens} * num_kv_heads;
  const int64_t scale_bytes = dtype == DType::kI8 ? int64_t{sizeof(float)} : 0;
  return 2 * entries * (int64_t{head_dim} * Info(dtype).block_bytes + scale_bytes);
}

void KvWrite(Stream, const KvWriteArgs& args) {
  const KvLayerView& cache = args.cache;
  const int32_t d = cache.head_dim;
  const int64_t element = Info(cache.dtype).block_bytes;
  const float* k = args.k.as<float>();
  const float* v = args.v.as<float>();
  for (int32_t r = 0; r < args.rows.num_rows; ++r) {
    const int32_t* pages = args.rows.page_table + int64_t{r} * args.rows.page_table_stride;
    for (int32_t t = args.rows.q_begin[r]; t < args.rows.q_begin[r + 1]; ++t) {
      const int32_t position = args.positions[t];
      const int32_t page = pages[position / cache.page_tokens];
      DCHECK_GE(page, 0) << "row " << r << " writes position " << position;
      const int32_t slot = position % cache.page_tokens;
      for (int32_t h = 0; h < cache.num_kv_heads; ++h) {
        const auto head = attention::HeadOfPage(cache, page, h);
        const int64_t at = slot * d * element;
        const int64_t scale_at = slot * int64_t{sizeof(float)};
        StoreHead(cache.dtype, k + t * args.k_row_stride + h * d, d, head.k + at,
                  head.k_scales + scale_at);
        StoreHead(cache.dtype, v + t * args.v_row_stride + h * d, d, head.v + at,
                  head.v_scales + scale_at);
      }
    }
  }
}

}  // namespace hayate::ops
