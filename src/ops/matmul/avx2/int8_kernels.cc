// Int8 products of all block formats without VNNI: 8 rows (half a tile) × up to 4 tokens at a time.
//
// VPMADDUBSW multiplies unsigned by signed bytes and adds pairs into 16 bits with saturation, so
// sums must stay below 2¹⁵. Codes up to 31 do: 2 · 31 · 127 = 7,874, and four of them may be added
// before they are widened (nibbles: eight). Codes with an offset of 128 do not; they are made
// signed and multiplied as |w| · sign(w) x, at most 2 · 128 · 127, and widened one by one.

#include "ops/detail/x86.h"
#include "ops/matmul/avx2/kernels.h"

#if defined(__x86_64__)

#define HAYATE_AVX2_INLINE HAYATE_AVX2 __attribute__((always_inline)) inline

namespace hayate::ops::matmul::avx2 {
namespace {

constexpr int kHalfRows = 8;
// How far ahead of the arithmetic the codes are fetched.
constexpr int64_t kBytesAhead = 4096;

HAYATE_AVX2_INLINE __m128i Load16(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
HAYATE_AVX2_INLINE __m256i Load32(const std::byte* from) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}
HAYATE_AVX2_INLINE __m128i Load8(const std::byte* from) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
}
HAYATE_AVX2_INLINE __m256 LoadHalves(const std::byte* from) {
  return _mm256_cvtph_ps(Load16(from));
}
HAYATE_AVX2_INLINE __m256 LoadU8(const std::byte* from) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(Load8(from)));
}
HAYATE_AVX2_INLINE __m256 LoadI8(const std::byte* from) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(Load8(from)));
}

// Codes are multiplied as signed numbers with the offset taken off.
template <Layout kLayout>
constexpr bool kSignedCodes = InfoOf(kLayout).offset == 128;

// The codes of one block for 8 rows: register g holds columns 4g … 4g+3.
template <Layout kLayout>
HAYATE_AVX2_INLINE void LoadCodes(const std::byte* codes, __m256i (&w)[8]) {
  constexpr LayoutInfo kInfo = InfoOf(kLayout);
  if constexpr (kInfo.codes == Codes::kByte) {
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) w[g] = Load32(codes + 64 * g);
  } else {
    const __m256i low_half = _mm256_set1_epi8(0xF);
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      const __m256i packed = Load32(codes + 64 * g);
      w[g] = _mm256_and_si256(packed, low_half);
      w[g + 4] = _mm256_and_si256(_mm256_srli_epi16(packed, 4), low_half);
    }
  }
  if constexpr (kInfo.codes == Codes::kTable) {
    const __m256i table = _mm256_broadcastsi128_si256(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(TableOf(kLayout))));
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) w[g] = _mm256_shuffle_epi8(table, w[g]);
  }
  if constexpr (kSignedCodes<kLayout>) {
    const __m256i sign = _mm256_set1_epi8(-128);
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) w[g] = _mm256_xor_si256(w[g], sign);
  }
}

struct ScaleMin {
  __m256 scale;
  __m256 min;
};
// Scale and min of rows [row, row + 8) for scale group `group`, counted from the row's start.
template <Layout kLayout>
HAYATE_AVX2_INLINE ScaleMin LoadScale(const std::byte* tile, int row, int64_t group) {
  constexpr LayoutInfo kInfo = InfoOf(kLayout);
  constexpr int64_t kUnitBytes = ScaleUnitBytes(kInfo);
  if constexpr (kInfo.scales == Scales::kF16) {
    return {LoadHalves(tile + group * kUnitBytes + 2 * row), _mm256_setzero_ps()};
  } else if constexpr (kInfo.scales == Scales::kBf16) {
    const __m256i words = _mm256_cvtepu16_epi32(Load16(tile + group * kUnitBytes + 2 * row));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(words, 16)), _mm256_setzero_ps()};
  } else if constexpr (kInfo.scales == Scales::kF16Min) {
    const std::byte* from = tile + group * kUnitBytes + 2 * row;
    return {LoadHalves(from), LoadHalves(from + 2 * kTileRows)};
  } else {
    constexpr int kGroups = kSuperBlock / kInfo.group;
    const std::byte* from = tile + group / kGroups * kUnitBytes;
    const __m256 d = LoadHalves(from + 2 * row);
    if constexpr (kInfo.scales == Scales::kSuperSigned) {
      const std::byte* scales = from + 2 * kTileRows + group % kGroups * kTileRows + row;
      return {_mm256_mul_ps(d, LoadI8(scales)), _mm256_setzero_ps()};
    } else {
      const std::byte* scales = from + 4 * kTileRows + group % kGroups * 2 * kTileRows + row;
      const __m256 dmin = LoadHalves(from + 2 * kTileRows + 2 * row);
      const __m256 min = _mm256_mul_ps(dmin, LoadU8(scales + kTileRows));
      return {_mm256_mul_ps(d, LoadU8(scales)), _mm256_sub_ps(_mm256_setzero_ps(), min)};
    }
  }
}

// Σ code · xq over groups [kFirst, kFirst + kCount) of a block, the offset off where codes are
// signed.
template <Layout kLayout, int kFirst, int kCount>
HAYATE_AVX2_INLINE __m256i Dot(const __m256i (&w)[8], const int8_t* xq) {
  constexpr int kPerWidening = kSignedCodes<kLayout>                     ? 1
                               : InfoOf(kLayout).codes == Codes::kNibble ? 8
                                                                         : 4;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sum = _mm256_setzero_si256();
  __m256i words = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int g = kFirst; g < kFirst + kCount; ++g) {
    int32_t four;
    __builtin_memcpy(&four, xq + 4 * g, sizeof(four));
    const __m256i x = _mm256_set1_epi32(four);
    const __m256i product = kSignedCodes<kLayout> ? _mm256_maddubs_epi16(_mm256_abs_epi8(w[g]),
                                                                         _mm256_sign_epi8(x, w[g]))
                                                  : _mm256_maddubs_epi16(w[g], x);
    words = _mm256_add_epi16(words, product);
    if ((g + 1) % kPerWidening == 0 || g + 1 == kFirst + kCount) {
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(words, ones));
      words = _mm256_setzero_si256();
    }
  }
  return sum;
}

HAYATE_AVX2_INLINE __m256 Add(__m256 acc, __m256i dot, const ScaleMin& scale, float x_scale,
                              const float* x_sum) {
  const __m256 both = _mm256_mul_ps(scale.scale, _mm256_set1_ps(x_scale));
  acc = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), both, acc);
  return x_sum == nullptr ? acc : _mm256_fmadd_ps(scale.min, _mm256_set1_ps(*x_sum), acc);
}

// Rows [row, row + 8) of a tile × kTokens tokens from `token` on.
template <Layout kLayout, int kTokens>
HAYATE_AVX2 void RunHalf(const std::byte* tile, int row, const KernelArgs& args, int64_t token,
                         __m256 (&acc)[kTokens]) {
  constexpr LayoutInfo kInfo = InfoOf(kLayout);
  constexpr bool kHasMin = kInfo.scales == Scales::kF16Min || kInfo.scales == Scales::kSuperMin;
  const int64_t blocks = args.k / kBlock;
  const std::byte* codes = tile + CodesOffset(kInfo, args.k) + 4 * row;
  for (int64_t b = 0; b < blocks; ++b, codes += CodeBlockBytes(kInfo)) {
    if (row == 0) {
      // The tiles are one stream; the second half finds its lines in the first cache.
      for (int64_t line = 0; line < CodeBlockBytes(kInfo); line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(codes + kBytesAhead + line), _MM_HINT_T1);
      }
    }
    __m256i w[8];
    LoadCodes<kLayout>(codes, w);
    if constexpr (kInfo.group == kBlock) {
      const ScaleMin scale = LoadScale<kLayout>(tile, row, b);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        const BlockMeta& m = args.meta[(token + t) * blocks + b];
        __m256i dot = Dot<kLayout, 0, 8>(w, args.xq + (token + t) * args.k + b * kBlock);
        if constexpr (kInfo.offset == 8) {
          dot = _mm256_add_epi32(dot, _mm256_set1_epi32(m.neg8_sum));
        }
        acc[t] = Add(acc[t], dot, scale, m.scale, kHasMin ? &m.scaled_sum : nullptr);
      }
    } else {
      const ScaleMin low = LoadScale<kLayout>(tile, row, 2 * b);
      const ScaleMin high = LoadScale<kLayout>(tile, row, 2 * b + 1);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        const BlockMeta& m = args.meta[(token + t) * blocks + b];
        const int8_t* xq = args.xq + (token + t) * args.k + b * kBlock;
        acc[t] = Add(acc[t], Dot<kLayout, 0, 4>(w, xq), low, m.scale,
                     kHasMin ? &m.scaled_sum_low : nullptr);
        acc[t] = Add(acc[t], Dot<kLayout, 4, 4>(w, xq), high, m.scale,
                     kHasMin ? &m.scaled_sum_high : nullptr);
      }
    }
  }
}

template <Layout kLayout, int kTokens>
HAYATE_AVX2 void RunTile(const std::byte* tile, const KernelArgs& args, int64_t token,
                         int64_t first_row) {
  for (int row = 0; row < kTileRows; row += kHalfRows) {
    const int64_t valid = args.n - first_row - row;
    if (valid <= 0) return;
    __m256 acc[kTokens];
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_setzero_ps();
    RunHalf<kLayout, kTokens>(tile, row, args, token, acc);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      float sums[kHalfRows];
      _mm256_storeu_ps(sums, acc[t]);
      float* out = args.out + (token + t) * args.out_stride + first_row + row;
      for (int64_t i = 0; i < (valid < kHalfRows ? valid : kHalfRows); ++i) {
        out[i] = args.bias == nullptr ? sums[i] : sums[i] + args.bias[first_row + row + i];
      }
    }
  }
}

// A tile stays in the first cache while all tokens pass by.
template <Layout kLayout>
void RunPart(const KernelArgs& args) {
  const int64_t tile_bytes = TileBytes(kLayout, args.k);
  for (int64_t row = 0; row < args.n; row += kTileRows) {
    const std::byte* tile = args.tiles + row / kTileRows * tile_bytes;
    int64_t t = 0;
    for (; t + 4 <= args.t; t += 4) RunTile<kLayout, 4>(tile, args, t, row);
    for (; t < args.t; ++t) RunTile<kLayout, 1>(tile, args, t, row);
  }
}

}  // namespace

void RunInt8(Layout layout, const KernelArgs& args) {
  switch (layout) {
    case Layout::kNibble:
      return RunPart<Layout::kNibble>(args);
    case Layout::kNibbleMin:
      return RunPart<Layout::kNibbleMin>(args);
    case Layout::kNibbleIq4Nl:
      return RunPart<Layout::kNibbleIq4Nl>(args);
    case Layout::kNibbleMxfp4:
      return RunPart<Layout::kNibbleMxfp4>(args);
    case Layout::kNibbleSuper:
      return RunPart<Layout::kNibbleSuper>(args);
    case Layout::kByte:
      return RunPart<Layout::kByte>(args);
    case Layout::kByteMin:
      return RunPart<Layout::kByteMin>(args);
    case Layout::kByteSuper:
      return RunPart<Layout::kByteSuper>(args);
    case Layout::kByteSigned16:
      return RunPart<Layout::kByteSigned16>(args);
    case Layout::kByteSuper16:
      return RunPart<Layout::kByteSuper16>(args);
    default:
      return;
  }
}

}  // namespace hayate::ops::matmul::avx2

#endif  // __x86_64__
