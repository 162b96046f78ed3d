// Int8 products of all block formats: 16 rows × up to 8 tokens at a time over the whole of K.
//
//   per block of 32 columns   unpack 16 rows of codes into 8 registers (nibbles: 4 loads, 4 shifts,
//                             8 ANDs), then for every token 8 VPDPBUSD against broadcast
//                             activations, one conversion, one product of scales, one or two FMAs
//   registers                 8 codes + 8 integer sums + 8 fp32 sums + 2 scales of 32
//   traffic                   every weight byte once per 8 tokens, from L1 after the first 8
//   bound                     1 token: memory. From 4 tokens on the two dot-product pipes: 11 of
//                             their slots per 8 useful ones; unpacking runs beside them on the
//                             other pipes. Without VNNI 2 to 5 instructions stand for a VPDPBUSD.

#include "ops/matmul/avx512/block.h"
#include "ops/matmul/avx512/kernels.h"
#include "ops/matmul/avx512/target.h"

#if defined(__x86_64__)

namespace hayate::ops::matmul::avx512 {
namespace {

// How far ahead of the arithmetic the weights are fetched.
constexpr int64_t kBlocksAhead = 8;

// A way to sum up products of codes and activations. Both give the exact integers.
//
//   Start         what a token's sum starts from, given the meta of its block and −128 · Σ xq
//   Add           Σ code · xq over column groups [kFirst, kFirst + kCount) of the block, added to
//                 the sums of kTokens tokens; `xq` is the block's first column of the first token,
//                 `k` bytes lie between tokens
struct Vnni {
  template <Layout kLayout>
  HAYATE_AVX512_INLINE static __m512i Start(const BlockMeta& meta, int32_t neg128_sum) {
    return StartSum<kLayout>(meta, neg128_sum);
  }

  template <Layout kLayout, int kFirst, int kCount, int kTokens>
  HAYATE_AVX512_INLINE static void Add(const __m512i (&w)[8], const int8_t* xq, int64_t k,
                                       __m512i (&sum)[kTokens]) {
#pragma GCC unroll 8
    for (int g = kFirst; g < kFirst + kCount; ++g) {
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) sum[t] = DotVnni(sum[t], w[g], xq + t * k + 4 * g);
    }
  }
};

// VPMADDUBSW adds pairs of products into 16 bits with saturation, so sums must stay below 2¹⁵.
// Codes up to 31 do: 2 · 31 · 127 = 7,874, and four of them may be added before they are widened
// (nibbles: eight). Codes with an offset of 128 do not; the offset is taken off and they are
// multiplied as |w| · sign(w) x, at most 2 · 128 · 127, and widened one by one.
struct Maddubs {
  template <Layout kLayout>
  static constexpr bool kSigned = InfoOf(kLayout).offset == 128;

  template <Layout kLayout>
  HAYATE_AVX512_INLINE static __m512i Start(const BlockMeta& meta, int32_t neg128_sum) {
    return kSigned<kLayout> ? _mm512_setzero_si512() : StartSum<kLayout>(meta, neg128_sum);
  }

  HAYATE_AVX512_INLINE static __m512i Broadcast(const int8_t* four) {
    int32_t word;
    __builtin_memcpy(&word, four, sizeof(word));
    return _mm512_set1_epi32(word);
  }

  template <Layout kLayout, int kFirst, int kCount, int kTokens>
  HAYATE_AVX512_INLINE static void Add(const __m512i (&w)[8], const int8_t* xq, int64_t k,
                                       __m512i (&sum)[kTokens]) {
    const __m512i ones = _mm512_set1_epi16(1);
    if constexpr (kSigned<kLayout>) {
#pragma GCC unroll 8
      for (int g = kFirst; g < kFirst + kCount; ++g) {
        const __m512i code = _mm512_xor_si512(w[g], _mm512_set1_epi8(-128));
        const __m512i magnitude = _mm512_abs_epi8(code);
        const __mmask64 negative = _mm512_movepi8_mask(code);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          const __m512i x = Broadcast(xq + t * k + 4 * g);
          const __m512i turned = _mm512_mask_sub_epi8(x, negative, _mm512_setzero_si512(), x);
          const __m512i words = _mm512_maddubs_epi16(magnitude, turned);
          sum[t] = _mm512_add_epi32(sum[t], _mm512_madd_epi16(words, ones));
        }
      }
    } else {
      constexpr int kMost = InfoOf(kLayout).codes == Codes::kNibble ? 8 : 4;
      constexpr int kPerWidening = kCount < kMost ? kCount : kMost;
      static_assert(kCount % kPerWidening == 0);
#pragma GCC unroll 8
      for (int first = kFirst; first < kFirst + kCount; first += kPerWidening) {
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          const int8_t* x = xq + t * k;
          __m512i words = _mm512_maddubs_epi16(w[first], Broadcast(x + 4 * first));
#pragma GCC unroll 8
          for (int g = first + 1; g < first + kPerWidening; ++g) {
            words = _mm512_add_epi16(words, _mm512_maddubs_epi16(w[g], Broadcast(x + 4 * g)));
          }
          sum[t] = _mm512_add_epi32(sum[t], _mm512_madd_epi16(words, ones));
        }
      }
    }
  }
};

struct TokenGroup {
  const int8_t* xq;       // first token; K between tokens
  const BlockMeta* meta;  // K/32 between tokens
};

// One block of one tile × kTokens tokens, added to `acc`.
template <class Dots, Layout kLayout, int kTokens>
HAYATE_AVX512_INLINE void AddBlock(const std::byte* tile, const std::byte* codes, int64_t b,
                                   const KernelArgs& args, const TokenGroup& tokens,
                                   __m512 (&acc)[kTokens]) {
  const int64_t k = args.k;
  const int64_t blocks = k / kBlock;
  const int8_t* xq = tokens.xq + b * kBlock;
  const BlockMeta* meta = tokens.meta + b;
  __m512i w[8], sum[kTokens];
  LoadCodes<kLayout>(codes, w);
  if constexpr (InfoOf(kLayout).group == kBlock) {
    const ScaleMin scale = LoadScale<kLayout>(tile, b);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const BlockMeta& m = meta[t * blocks];
      sum[t] = Dots::template Start<kLayout>(m, m.neg128_sum);
    }
    Dots::template Add<kLayout, 0, 8>(w, xq, k, sum);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const BlockMeta& m = meta[t * blocks];
      acc[t] = AddScaled<kLayout>(acc[t], sum[t], scale, m.scale, m.scaled_sum);
    }
  } else {
    const ScaleMin low = LoadScale<kLayout>(tile, 2 * b);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const BlockMeta& m = meta[t * blocks];
      sum[t] = Dots::template Start<kLayout>(m, m.neg128_sum_low);
    }
    Dots::template Add<kLayout, 0, 4>(w, xq, k, sum);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const BlockMeta& m = meta[t * blocks];
      acc[t] = AddScaled<kLayout>(acc[t], sum[t], low, m.scale, m.scaled_sum_low);
      sum[t] = Dots::template Start<kLayout>(m, m.neg128_sum_high);
    }
    const ScaleMin high = LoadScale<kLayout>(tile, 2 * b + 1);
    Dots::template Add<kLayout, 4, 4>(w, xq, k, sum);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const BlockMeta& m = meta[t * blocks];
      acc[t] = AddScaled<kLayout>(acc[t], sum[t], high, m.scale, m.scaled_sum_high);
    }
  }
}

// Into the second cache: misses that wait in the first one would hold up the loads (Zen 4, 92 MB of
// Q4_1 and one token: 14 GB/s with the first cache as target, 19 with the second).
HAYATE_AVX512_INLINE void Prefetch(const std::byte* address) {
  _mm_prefetch(reinterpret_cast<const char*>(address), _MM_HINT_T1);
}

// kTiles tiles × kTokens tokens. Few tokens take several tiles side by side: that many streams keep
// more cache lines in flight than one would, and memory is what they wait for.
template <class Dots, Layout kLayout, int kTiles, int kTokens>
HAYATE_AVX512 void RunTiles(const std::byte* tiles, const KernelArgs& args, int64_t token,
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
      AddBlock<Dots, kLayout, kTokens>(tiles + r * tile_bytes, codes + r * tile_bytes, b, args,
                                       tokens, acc[r]);
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
template <class Dots, Layout kLayout, int kTiles, int kTokens>
void RunGroup(const std::byte* tiles, const KernelArgs& args, int64_t token, int64_t row,
              int64_t count) {
  const int64_t tile_bytes = TileBytes(kLayout, args.k);
  for (; count >= kTiles; count -= kTiles, row += kTiles * kTileRows) {
    RunTiles<Dots, kLayout, kTiles, kTokens>(tiles, args, token, row);
    tiles += kTiles * tile_bytes;
  }
  for (; count > 0; --count, row += kTileRows, tiles += tile_bytes) {
    RunTiles<Dots, kLayout, 1, kTokens>(tiles, args, token, row);
  }
}

// Groups of tiles that stay in the first two caches while all tokens pass by, 8 tokens of
// activations in the first meanwhile.
template <class Dots, Layout kLayout>
void RunPart(const KernelArgs& args) {
  constexpr int64_t kTilesPerGroup = 4;
  const int64_t tile_bytes = TileBytes(kLayout, args.k);
  const int64_t num_tiles = CeilDiv<int64_t>(args.n, kTileRows);
  for (int64_t first = 0; first < num_tiles; first += kTilesPerGroup) {
    const int64_t count = num_tiles - first < kTilesPerGroup ? num_tiles - first : kTilesPerGroup;
    const std::byte* tiles = args.tiles + first * tile_bytes;
    const int64_t row = first * kTileRows;
    int64_t t = 0;
    for (; t + 8 <= args.t; t += 8) RunGroup<Dots, kLayout, 1, 8>(tiles, args, t, row, count);
    if (t + 4 <= args.t) {
      RunGroup<Dots, kLayout, 2, 4>(tiles, args, t, row, count);
      t += 4;
    }
    if (t + 2 <= args.t) {
      RunGroup<Dots, kLayout, 4, 2>(tiles, args, t, row, count);
      t += 2;
    }
    if (t < args.t) RunGroup<Dots, kLayout, 4, 1>(tiles, args, t, row, count);
  }
}

template <class Dots>
void Run(Layout layout, const KernelArgs& args) {
  switch (layout) {
    case Layout::kNibble:
      return RunPart<Dots, Layout::kNibble>(args);
    case Layout::kNibbleMin:
      return RunPart<Dots, Layout::kNibbleMin>(args);
    case Layout::kNibbleIq4Nl:
      return RunPart<Dots, Layout::kNibbleIq4Nl>(args);
    case Layout::kNibbleMxfp4:
      return RunPart<Dots, Layout::kNibbleMxfp4>(args);
    case Layout::kNibbleSuper:
      return RunPart<Dots, Layout::kNibbleSuper>(args);
    case Layout::kByte:
      return RunPart<Dots, Layout::kByte>(args);
    case Layout::kByteMin:
      return RunPart<Dots, Layout::kByteMin>(args);
    case Layout::kByteSuper:
      return RunPart<Dots, Layout::kByteSuper>(args);
    case Layout::kByteSigned16:
      return RunPart<Dots, Layout::kByteSigned16>(args);
    case Layout::kByteSuper16:
      return RunPart<Dots, Layout::kByteSuper16>(args);
    default:
      return;
  }
}

}  // namespace

void RunInt8(Layout layout, const KernelArgs& args) { Run<Maddubs>(layout, args); }
void RunInt8Vnni(Layout layout, const KernelArgs& args) { Run<Vnni>(layout, args); }

}  // namespace hayate::ops::matmul::avx512

#endif  // __x86_64__
