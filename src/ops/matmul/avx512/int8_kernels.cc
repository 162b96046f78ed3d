// Int8 products of all block formats: 16 rows × up to 8 tokens at a time over the whole of K.
//
//   per block of 32 columns   unpack 16 rows of codes into 8 registers (nibbles: 4 loads, 4 shifts,
//                             8 ANDs), then for every token 8 VPDPBUSD against broadcast
//                             activations, one conversion, one product of scales, one or two FMAs
//   registers                 8 codes + 8 integer sums + 8 fp32 sums + 2 scales of 32
//   traffic                   every weight byte once per 8 tokens, from L1 after the first 8
//   bound                     1 token: memory. From 4 tokens on the two dot-product pipes: 11 of
//   their
//                             slots per 8 useful ones; unpacking runs beside them on the other
//                             pipes.

#include "ops/matmul/avx512/kernels.h"
#include "ops/matmul/avx512/target.h"

#if defined(__x86_64__)

namespace hayate::ops::matmul::avx512 {
namespace {

HAYATE_AVX512_VNNI_INLINE __m512 LoadHalves(const std::byte* from) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
}
HAYATE_AVX512_VNNI_INLINE __m512 LoadBf16(const std::byte* from) {
  const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
}
HAYATE_AVX512_VNNI_INLINE __m512 LoadU8(const std::byte* from) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}
HAYATE_AVX512_VNNI_INLINE __m512 LoadI8(const std::byte* from) {
  return _mm512_cvtepi32_ps(
      _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
}

// The unsigned codes of one block: register g holds columns 4g … 4g+3 of the 16 rows.
template <Layout kLayout>
HAYATE_AVX512_VNNI_INLINE void LoadCodes(const std::byte* codes, __m512i (&w)[8]) {
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
HAYATE_AVX512_VNNI_INLINE ScaleMin LoadScale(const std::byte* tile, int64_t group) {
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

// How far ahead of the arithmetic the weights are fetched.
constexpr int64_t kBlocksAhead = 8;

// What an integer sum starts from: the offset's share.
template <int kOffset>
HAYATE_AVX512_VNNI_INLINE __m512i StartSum(const BlockMeta& meta, const int32_t& neg128_sum) {
  static_assert(kOffset == 0 || kOffset == 8 || kOffset == 128);
  if constexpr (kOffset == 8) return _mm512_set1_epi32(meta.neg8_sum);
  if constexpr (kOffset == 128) return _mm512_set1_epi32(neg128_sum);
  return _mm512_setzero_si512();
}

HAYATE_AVX512_VNNI_INLINE __m512i Dot(__m512i sum, __m512i codes, const int8_t* xq) {
  int32_t four;
  __builtin_memcpy(&four, xq, sizeof(four));
  return _mm512_dpbusd_epi32(sum, codes, _mm512_set1_epi32(four));
}

struct TokenGroup {
  const int8_t* xq;       // first token; K between tokens
  const BlockMeta* meta;  // K/32 between tokens
};

// One block of one tile × kTokens tokens, added to `acc`.
template <Layout kLayout, int kTokens>
HAYATE_AVX512_VNNI_INLINE void AddBlock(const std::byte* tile, const std::byte* codes, int64_t b,
                                        const KernelArgs& args, const TokenGroup& tokens,
                                        __m512 (&acc)[kTokens]) {
  constexpr LayoutInfo kInfo = InfoOf(kLayout);
  constexpr bool kHasMin = kInfo.scales == Scales::kF16Min || kInfo.scales == Scales::kSuperMin;
  const int64_t k = args.k;
  const int64_t blocks = k / kBlock;
  const int8_t* xq = tokens.xq + b * kBlock;
  const BlockMeta* meta = tokens.meta + b;
  __m512i w[8];
  LoadCodes<kLayout>(codes, w);
  if constexpr (kInfo.group == kBlock) {
    const ScaleMin scale = LoadScale<kLayout>(tile, b);
    __m512i sum[kTokens];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const BlockMeta& m = meta[t * blocks];
      sum[t] = StartSum<kInfo.offset>(m, m.neg128_sum);
    }
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) sum[t] = Dot(sum[t], w[g], xq + t * k + 4 * g);
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const BlockMeta& m = meta[t * blocks];
      const __m512 both = _mm512_mul_ps(scale.scale, _mm512_set1_ps(m.scale));
      acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[t]), both, acc[t]);
      if constexpr (kHasMin) {
        acc[t] = _mm512_fmadd_ps(scale.min, _mm512_set1_ps(m.scaled_sum), acc[t]);
      }
    }
  } else {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const ScaleMin scale = LoadScale<kLayout>(tile, 2 * b + half);
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const BlockMeta& m = meta[t * blocks];
        __m512i sum = StartSum<kInfo.offset>(m, half == 0 ? m.neg128_sum_low : m.neg128_sum_high);
#pragma GCC unroll 4
        for (int g = 4 * half; g < 4 * half + 4; ++g) sum = Dot(sum, w[g], xq + t * k + 4 * g);
        const __m512 both = _mm512_mul_ps(scale.scale, _mm512_set1_ps(m.scale));
        acc[t] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), both, acc[t]);
        if constexpr (kHasMin) {
          const float half_sum = half == 0 ? m.scaled_sum_low : m.scaled_sum_high;
          acc[t] = _mm512_fmadd_ps(scale.min, _mm512_set1_ps(half_sum), acc[t]);
        }
      }
    }
  }
}

// Into the second cache: misses that wait in the first one would hold up the loads (Zen 4, 92 MB of
// Q4_1 and one token: 14 GB/s with the first cache as target, 19 with the second).
HAYATE_AVX512_VNNI_INLINE void Prefetch(const std::byte* address) {
  _mm_prefetch(reinterpret_cast<const char*>(address), _MM_HINT_T1);
}

// kTiles tiles × kTokens tokens. Few tokens take several tiles side by side: that many streams keep
// more cache lines in flight than one would, and memory is what they wait for.
template <Layout kLayout, int kTiles, int kTokens>
HAYATE_AVX512_VNNI void RunTiles(const std::byte* tiles, const KernelArgs& args, int64_t token,
                                 int64_t row) {
  constexpr LayoutInfo kInfo = InfoOf(kLayout);
  constexpr int64_t kCodeBytes = CodeBlockBytes(kInfo);
  const int64_t blocks = args.k / kBlock;
  const int64_t tile_bytes = TileBytes(kLayout, args.k);
  const std::byte* codes = tiles + CodesOffset(kInfo, args.k);
  const TokenGroup tokens{args.xq + token * args.k, args.meta + token * blocks};
  __m512 acc[kTiles][kTokens];
#pragma GCC unroll 8
  for (int r = 0; r < kTiles; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) acc[r][t] = _mm512_setzero_ps();
  }
  // Past the end of a tile the stream goes on kTiles tiles further.
  constexpr int64_t kScaleBytes = ScaleUnitBytes(kInfo) * kBlock / kInfo.unit;
  const int64_t ahead = blocks < kBlocksAhead ? blocks : kBlocksAhead;
  for (int64_t b = 0; b < blocks; ++b, codes += kCodeBytes) {
    const bool wraps = b + ahead >= blocks;
    const std::byte* next_codes =
        codes + ahead * kCodeBytes + (wraps ? kTiles * tile_bytes - blocks * kCodeBytes : 0);
    const std::byte* next_scales = tiles + (b + ahead) * kScaleBytes +
                                   (wraps ? kTiles * tile_bytes - blocks * kScaleBytes : 0);
#pragma GCC unroll 4
    for (int r = 0; r < kTiles; ++r) {
      Prefetch(next_scales + r * tile_bytes);
      for (int64_t line = 0; line < kCodeBytes; line += 64) {
        Prefetch(next_codes + r * tile_bytes + line);
      }
      AddBlock<kLayout, kTokens>(tiles + r * tile_bytes, codes + r * tile_bytes, b, args, tokens,
                                 acc[r]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTiles; ++r, row += kTileRows) {
    const int64_t valid = args.n - row < kTileRows ? args.n - row : kTileRows;
    const __mmask16 rows = FirstLanes(valid);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      if (args.bias != nullptr) {
        acc[r][t] = _mm512_add_ps(acc[r][t], _mm512_maskz_loadu_ps(rows, args.bias + row));
      }
      _mm512_mask_storeu_ps(args.out + (token + t) * args.out_stride + row, rows, acc[r][t]);
    }
  }
}

// `count` tiles × tokens [token, token + kTokens).
template <Layout kLayout, int kTiles, int kTokens>
void RunGroup(const std::byte* tiles, const KernelArgs& args, int64_t token, int64_t row,
              int64_t count) {
  const int64_t tile_bytes = TileBytes(kLayout, args.k);
  for (; count >= kTiles; count -= kTiles, row += kTiles * kTileRows) {
    RunTiles<kLayout, kTiles, kTokens>(tiles, args, token, row);
    tiles += kTiles * tile_bytes;
  }
  for (; count > 0; --count, row += kTileRows, tiles += tile_bytes) {
    RunTiles<kLayout, 1, kTokens>(tiles, args, token, row);
  }
}

// Groups of tiles that stay in the first two caches while all tokens pass by, 8 tokens of
// activations in the first meanwhile.
template <Layout kLayout>
void RunPart(const KernelArgs& args) {
  constexpr int64_t kTilesPerGroup = 4;
  const int64_t tile_bytes = TileBytes(kLayout, args.k);
  const int64_t num_tiles = CeilDiv<int64_t>(args.n, kTileRows);
  for (int64_t first = 0; first < num_tiles; first += kTilesPerGroup) {
    const int64_t count = num_tiles - first < kTilesPerGroup ? num_tiles - first : kTilesPerGroup;
    const std::byte* tiles = args.tiles + first * tile_bytes;
    const int64_t row = first * kTileRows;
    int64_t t = 0;
    for (; t + 8 <= args.t; t += 8) RunGroup<kLayout, 1, 8>(tiles, args, t, row, count);
    if (t + 4 <= args.t) {
      RunGroup<kLayout, 2, 4>(tiles, args, t, row, count);
      t += 4;
    }
    if (t + 2 <= args.t) {
      RunGroup<kLayout, 4, 2>(tiles, args, t, row, count);
      t += 2;
    }
    if (t < args.t) RunGroup<kLayout, 4, 1>(tiles, args, t, row, count);
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

}  // namespace hayate::ops::matmul::avx512

#endif  // __x86_64__
