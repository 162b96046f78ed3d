#pragma once
// Int8 products of all block formats on a tile unit: 16 rows × 16 tokens at a time. A block of the
// packed layout is a right-hand tile as it lies in memory: 8 rows of 64 bytes, each 4 columns of 16
// weight rows. Activations are the left-hand tile, 16 tokens × 32 columns.
//
//   per 16 rows               nibbles: codes unpacked into at most 32 KiB of the nearest caches,
//   once
//                             for all tokens; longer rows go in parts, with sums kept in `out`
//   per block of 32 columns   2 tile loads, 1 TDPBSUD, 1 tile store, then for every token what the
//                             AVX-512 kernels do after their dot products: the same bits
//   tiles                     sums [16 tokens][16 rows] of 32 bits, twice, so that a product runs
//                             while the one before it is scaled; codes and activations of a block,
//                             and of half a block for scales per 16 columns
//   bound                     the vector part: 16 · (load, add, convert, multiply, FMA) against
//                             16 cycles of the tile unit

#include <algorithm>

#include "ops/matmul/amx/tile_unit.h"
#include "ops/matmul/avx512/block.h"
#include "ops/matmul/kernels.h"

#if defined(__x86_64__)

namespace hayate::ops::matmul::amx {

inline constexpr int kTileTokens = 16;
inline constexpr int64_t kPartBlocks = 64;  // of unpacked codes

enum Tile : int { kSums, kNextSums, kCodes, kActivations, kHalfCodes, kHalfActivations };

constexpr TileConfig MakeTileConfig() {
  TileConfig config;
  const auto set = [&config](Tile tile, int rows, int row_bytes) {
    config.rows[tile] = static_cast<uint8_t>(rows);
    config.row_bytes[tile] = static_cast<uint16_t>(row_bytes);
  };
  set(kSums, kTileTokens, 4 * kTileRows);
  set(kNextSums, kTileTokens, 4 * kTileRows);
  set(kCodes, kBlock / 4, 4 * kTileRows);
  set(kActivations, kTileTokens, kBlock);
  set(kHalfCodes, kBlock / 8, 4 * kTileRows);
  set(kHalfActivations, kTileTokens, kBlock / 2);
  return config;
}

// sums [16 tokens][16 rows] of kColumns columns; `codes` as they lie in a block, `xq` with `k`
// bytes between tokens.
template <Tile kInto, int kColumns, class Unit>
void MultiplyTile(Unit& unit, const std::byte* codes, const int8_t* xq, int64_t k, int32_t* sums) {
  constexpr bool kWhole = kColumns == kBlock;
  constexpr int kB = kWhole ? kCodes : kHalfCodes;
  constexpr int kA = kWhole ? kActivations : kHalfActivations;
  unit.template Zero<kInto>();
  unit.template Load<kB>(codes, 4 * kTileRows);
  unit.template Load<kA>(xq, k);
  unit.template DotSignedUnsigned<kInto, kA, kB>();
  unit.template Store<kInto>(sums, 4 * kTileRows);
}

// Blocks [begin, end) of 16 rows of weights: `tile` is all of them, `codes` a byte a code from
// block `begin` on.
struct RowPart {
  const std::byte* tile = nullptr;
  const std::byte* codes = nullptr;
  int64_t row = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// Adds one product's 16 × 16 sums, of scale group `index` of the rows, to the tokens' accumulators.
template <Layout kLayout>
HAYATE_AVX512 inline void AddSums(const RowPart& part, const KernelArgs& args, int64_t token,
                                  int64_t index, const int32_t* sums, __m512* acc) {
  constexpr int kGroups = kBlock / InfoOf(kLayout).group;
  const int64_t blocks = args.k / kBlock;
  const bool low = index % kGroups == 0;
  const BlockMeta* meta = args.meta + token * blocks + index / kGroups;
  const avx512::ScaleMin scale = avx512::LoadScale<kLayout>(part.tile, index);
#pragma GCC unroll 16
  for (int t = 0; t < kTileTokens; ++t) {
    const BlockMeta& m = meta[t * blocks];
    const int32_t neg128 = kGroups == 1 ? m.neg128_sum : low ? m.neg128_sum_low : m.neg128_sum_high;
    const float x_sum = kGroups == 1 ? m.scaled_sum : low ? m.scaled_sum_low : m.scaled_sum_high;
    const __m512i dot = _mm512_add_epi32(_mm512_load_si512(sums + kTileRows * t),
                                         avx512::StartSum<kLayout>(m, neg128));
    acc[t] = avx512::AddScaled<kLayout>(acc[t], dot, scale, m.scale, x_sum);
  }
}

// Part of 16 rows × the 16 tokens from `token` on. Parts of a row come in order: the sums of those
// before lie in `out`, where the last part adds the bias.
template <Layout kLayout, class Unit>
HAYATE_AVX512 void RunTile(Unit& unit, const RowPart& part, const KernelArgs& args, int64_t token) {
  constexpr int kColumns = InfoOf(kLayout).group;
  constexpr int kGroups = kBlock / kColumns;
  const int64_t valid = args.n - part.row < kTileRows ? args.n - part.row : kTileRows;
  const __mmask16 rows = FirstLanes(valid);
  float* out = args.out + token * args.out_stride + part.row;
  __m512 acc[kTileTokens];
#pragma GCC unroll 16
  for (int t = 0; t < kTileTokens; ++t) {
    acc[t] = part.begin == 0 ? _mm512_setzero_ps()
                             : _mm512_maskz_loadu_ps(rows, out + t * args.out_stride);
  }
  alignas(64) int32_t sums[2][kTileTokens * kTileRows];
  const int8_t* xq = args.xq + token * args.k;
  const int64_t begin = part.begin * kGroups;
  const int64_t end = part.end * kGroups;
  const auto codes = [&](int64_t g) { return part.codes + (g - begin) * kColumns * kTileRows; };
  const auto multiply = [&]<Tile kInto>(int64_t g) {
    MultiplyTile<kInto, kColumns>(unit, codes(g), xq + g * kColumns, args.k, sums[kInto]);
  };
  multiply.template operator()<kSums>(begin);
  for (int64_t g = begin; g < end; g += 2) {
    if (g + 1 < end) multiply.template operator()<kNextSums>(g + 1);
    AddSums<kLayout>(part, args, token, g, sums[kSums], acc);
    if (g + 1 == end) break;
    if (g + 2 < end) multiply.template operator()<kSums>(g + 2);
    AddSums<kLayout>(part, args, token, g + 1, sums[kNextSums], acc);
  }
  const bool biased = args.bias != nullptr && part.end == args.k / kBlock;
  const __m512 bias =
      biased ? _mm512_maskz_loadu_ps(rows, args.bias + part.row) : _mm512_setzero_ps();
#pragma GCC unroll 16
  for (int t = 0; t < kTileTokens; ++t) {
    const __m512 sum = biased ? _mm512_add_ps(acc[t], bias) : acc[t];
    _mm512_mask_storeu_ps(out + t * args.out_stride, rows, sum);
  }
}

// `count` blocks of nibbles as a byte a code.
template <Layout kLayout>
HAYATE_AVX512 inline void UnpackBlocks(const std::byte* codes, int64_t count, std::byte* bytes) {
  for (int64_t b = 0; b < count; ++b, codes += CodeBlockBytes(InfoOf(kLayout))) {
    __m512i w[8];
    avx512::LoadCodes<kLayout>(codes, w);
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g, bytes += 64) _mm512_store_si512(bytes, w[g]);
  }
}

// All rows × the first whole tiles of tokens; returns how many tokens those were.
template <Layout kLayout, class Unit>
int64_t RunPart(Unit& unit, const KernelArgs& args) {
  constexpr LayoutInfo kInfo = InfoOf(kLayout);
  constexpr bool kUnpack = kInfo.codes != Codes::kByte;
  static constexpr TileConfig kConfig = MakeTileConfig();
  const int64_t whole = AlignDown<int64_t>(args.t, kTileTokens);
  if (whole == 0) return 0;
  const int64_t blocks = args.k / kBlock;
  const int64_t step = kUnpack ? kPartBlocks : blocks;
  alignas(64) std::byte unpacked[kUnpack ? kPartBlocks * kBlock * kTileRows : 1];
  unit.Configure(kConfig);
  for (int64_t row = 0; row < args.n; row += kTileRows) {
    const std::byte* tile = args.tiles + row / kTileRows * TileBytes(kLayout, args.k);
    const std::byte* codes = tile + CodesOffset(kInfo, args.k);
    for (int64_t begin = 0; begin < blocks; begin += step) {
      const int64_t end = std::min(begin + step, blocks);
      const std::byte* part = codes + begin * CodeBlockBytes(kInfo);
      if constexpr (kUnpack) {
        UnpackBlocks<kLayout>(part, end - begin, unpacked);
        part = unpacked;
      }
      for (int64_t token = 0; token < whole; token += kTileTokens) {
        RunTile<kLayout>(unit, {tile, part, row, begin, end}, args, token);
      }
    }
  }
  unit.Release();
  return whole;
}

// The part of a product that the unit computes, of any layout: how many tokens, from the first on.
template <class Unit>
int64_t RunTiles(Unit& unit, Layout layout, const KernelArgs& args) {
  switch (layout) {
    case Layout::kNibble:
      return RunPart<Layout::kNibble>(unit, args);
    case Layout::kNibbleMin:
      return RunPart<Layout::kNibbleMin>(unit, args);
    case Layout::kNibbleIq4Nl:
      return RunPart<Layout::kNibbleIq4Nl>(unit, args);
    case Layout::kNibbleMxfp4:
      return RunPart<Layout::kNibbleMxfp4>(unit, args);
    case Layout::kNibbleSuper:
      return RunPart<Layout::kNibbleSuper>(unit, args);
    case Layout::kByte:
      return RunPart<Layout::kByte>(unit, args);
    case Layout::kByteMin:
      return RunPart<Layout::kByteMin>(unit, args);
    case Layout::kByteSuper:
      return RunPart<Layout::kByteSuper>(unit, args);
    case Layout::kByteSigned16:
      return RunPart<Layout::kByteSigned16>(unit, args);
    case Layout::kByteSuper16:
      return RunPart<Layout::kByteSuper16>(unit, args);
    default:
      return 0;
  }
}

}  // namespace hayate::ops::matmul::amx

#endif  // __x86_64__
