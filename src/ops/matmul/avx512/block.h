#pragma once
// What every AVX-512 product of block formats does around the dot products of one block: unpack the
// codes, read the scales, add the scaled sum.

#include "ops/matmul/avx512/target.h"
#include "ops/matmul/kernels.h"

#if defined(__x86_64__)

namespace hayate::ops::matmul::avx512 {

HAYATE_AVX512_INLINE __m512 LoadHalves(const std::byte* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
HAYATE_AVX512_INLINE __m512 LoadBf16(const std::byte* from) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}
HAYATE_AVX512_INLINE __m512 LoadU8(const std::byte* from) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
HAYATE_AVX512_INLINE __m512 LoadI8(const std::byte* from) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

// The unsigned codes of one block: register g holds columns 4g … 4g+3 of the 16 rows.
template <Layout kLayout>
HAYATE_AVX512_INLINE void LoadCodes(const std::byte* codes, __m512i (&w)[8]) {
  constexpr LayoutInfo kInfo = InfoOf(kLayout);
  if constexpr (kInfo.codes == Codes::kByte) {
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) w[g] = _mm512_loadu_si512(codes + 64 * g);
    return;
  }
  const __m512i low_half = _mm512_set1_epi8(0xF);
#pragma GCC unroll 8
  for (int g = 0; g < 4; ++g) {
    const __m512i packed = _mm512_loadu_si512(codes + 64 * g);
    w[g] = _mm512_and_si512(packed, low_half);
    w[g + 4] = _mm512_and_si512(_mm512_srli_epi16(packed, 4), low_half);
  }
  if constexpr (kInfo.codes == Codes::kTable) {
    const __m512i table =
        _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(TableOf(kLayout))));
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) w[g] = _mm512_shuffle_epi8(table, w[g]);
  }
}

// Scale and min of 16 rows for scale group `group` of the row (counted from the row's start).
struct ScaleMin {
  __m512 scale;
  __m512 min;
};
template <Layout kLayout>
HAYATE_AVX512_INLINE ScaleMin LoadScale(const std::byte* tile, int64_t group) {
  constexpr LayoutInfo kInfo = InfoOf(kLayout);
  constexpr int64_t kUnitBytes = ScaleUnitBytes(kInfo);
  if constexpr (kInfo.scales == Scales::kF16) {
    return {LoadHalves(tile + group * kUnitBytes), _mm512_setzero_ps()};
  } else if constexpr (kInfo.scales == Scales::kBf16) {
    return {LoadBf16(tile + group * kUnitBytes), _mm512_setzero_ps()};
  } else if constexpr (kInfo.scales == Scales::kF16Min) {
    const std::byte* from = tile + group * kUnitBytes;
    return {LoadHalves(from), LoadHalves(from + 2 * kTileRows)};
  } else {
    constexpr int kGroups = kSuperBlock / kInfo.group;
    const std::byte* from = tile + group / kGroups * kUnitBytes;
    const __m512 d = LoadHalves(from);
    if constexpr (kInfo.scales == Scales::kSuperSigned) {
      const std::byte* scales = from + 2 * kTileRows + group % kGroups * kTileRows;
      return {_mm512_mul_ps(d, LoadI8(scales)), _mm512_setzero_ps()};
    } else {
      const std::byte* scales = from + 4 * kTileRows + group % kGroups * 2 * kTileRows;
      const __m512 dmin = LoadHalves(from + 2 * kTileRows);
      const __m512 min = _mm512_mul_ps(dmin, LoadU8(scales + kTileRows));
      return {_mm512_mul_ps(d, LoadU8(scales)), _mm512_sub_ps(_mm512_setzero_ps(), min)};
    }
  }
}

// What an integer sum of unsigned codes starts from: the offset's share.
template <Layout kLayout>
HAYATE_AVX512_INLINE __m512i StartSum(const BlockMeta& meta, int32_t neg128_sum) {
  constexpr int kOffset = InfoOf(kLayout).offset;
  static_assert(kOffset == 0 || kOffset == 8 || kOffset == 128);
  if constexpr (kOffset == 8) return _mm512_set1_epi32(meta.neg8_sum);
  if constexpr (kOffset == 128) return _mm512_set1_epi32(neg128_sum);
  return _mm512_setzero_si512();
}

// A token's sums of 16 rows and what one scale group adds: `dot` is the exact Σ (code − offset) ·
// xq, `x_sum` the group's xscale · Σ xq.
template <Layout kLayout>
HAYATE_AVX512_INLINE __m512 AddScaled(__m512 acc, __m512i dot, const ScaleMin& scale, float x_scale,
                                      float x_sum) {
  constexpr Scales kScales = InfoOf(kLayout).scales;
  const __m512 both = _mm512_mul_ps(scale.scale, _mm512_set1_ps(x_scale));
  acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), both, acc);
  if constexpr (kScales == Scales::kF16Min || kScales == Scales::kSuperMin) {
    acc = _mm512_fmadd_ps(scale.min, _mm512_set1_ps(x_sum), acc);
  }
  return acc;
}

}  // namespace hayate::ops::matmul::avx512

#endif  // __x86_64__
