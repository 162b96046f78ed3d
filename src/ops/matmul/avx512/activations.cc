#include "ops/matmul/avx512/kernels.h"
#include "ops/matmul/avx512/target.h"
#include "ops/matmul/quantize.h"
#include "tensor/float16.h"

#if defined(__x86_64__)

namespace hayate::ops::matmul::avx512 {
namespace {

// The same bits as QuantizeBlock.
HAYATE_AVX512_INLINE void QuantizeOne(const float* x, int8_t* xq, BlockMeta* meta) {
  const __m512 low = _mm512_loadu_ps(x);
  const __m512 high = _mm512_loadu_ps(x + 16);
  const __m512i magnitude = _mm512_set1_epi32(0x7FFFFFFF);
  // As integers, so that NaN and infinity win over every number.
  const int32_t top = _mm512_reduce_max_epi32(
      _mm512_max_epi32(_mm512_and_si512(_mm512_castps_si512(low), magnitude),
                       _mm512_and_si512(_mm512_castps_si512(high), magnitude)));
  const float max = __builtin_bit_cast(float, top);
  float inverse = 0.0f, scale = 0.0f;
  if (top >= 0x7F800000) {
    scale = __builtin_bit_cast(float, 0x7FC00000);
  } else if (max >= kSmallestActivation) {
    inverse = 127.0f / max;
    scale = max / 127.0f;
  }
  const __m512 factor = _mm512_set1_ps(inverse);
  // Infinity × 0 converts to the lowest integer: bounded, and the scale is NaN.
  const __m512i low_codes = _mm512_cvtps_epi32(_mm512_mul_ps(low, factor));
  const __m512i high_codes = _mm512_cvtps_epi32(_mm512_mul_ps(high, factor));
  const __m128i low_bytes = _mm512_cvtsepi32_epi8(low_codes);
  const __m128i high_bytes = _mm512_cvtsepi32_epi8(high_codes);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(xq), low_bytes);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(xq + 16), high_bytes);
  // Bytes biased to unsigned sum in one instruction per 8; 16 × 128 comes off again.
  const __m128i bias = _mm_set1_epi8(-128);
  const __m128i low_sums = _mm_sad_epu8(_mm_xor_si128(low_bytes, bias), _mm_setzero_si128());
  const __m128i high_sums = _mm_sad_epu8(_mm_xor_si128(high_bytes, bias), _mm_setzero_si128());
  const int32_t low_sum = _mm_cvtsi128_si32(low_sums) + _mm_extract_epi32(low_sums, 2) - 2048;
  const int32_t high_sum = _mm_cvtsi128_si32(high_sums) + _mm_extract_epi32(high_sums, 2) - 2048;
  *meta = MakeMeta(scale, low_sum, high_sum);
}

}  // namespace

HAYATE_AVX512 void Quantize(const float* x, int64_t t, int64_t k, int8_t* xq, BlockMeta* meta) {
  const int64_t blocks = t * k / kBlock;
  for (int64_t b = 0; b < blocks; ++b) QuantizeOne(x + b * kBlock, xq + b * kBlock, meta + b);
}

HAYATE_AVX512 void ToBf16(const float* x, int64_t t, int64_t k, uint16_t* out) {
  const int64_t stride = AlignUp<int64_t>(k, 2);
  for (int64_t row = 0; row < t; ++row, x += k, out += stride) {
    int64_t i = 0;
    for (; i + 16 <= k; i += 16) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), RoundToBf16(_mm512_loadu_ps(x + i)));
    }
    for (; i < k; ++i) out[i] = FloatToBf16(x[i]);
    if (stride != k) out[k] = 0;
  }
}

}  // namespace hayate::ops::matmul::avx512

#endif  // __x86_64__
