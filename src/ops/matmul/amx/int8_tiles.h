#pragma once
// Int8 products of all block formats on a tile unit: 16 rows × 16 tokens at a time over the whole
// of K. A block of the packed layout is a right-hand tile as it lies in memory: 8 rows of 64 bytes,
// each 4 columns of 16 weight rows. Activations are the left-hand tile, 16 tokens × 32 columns.
//
//   per block of 32 columns   nibbles: 16 rows of codes unpacked into 512 bytes of the first cache;
//                             2 tile loads, 1 TDPBSUD, 1 tile store, then for every token what the
//                             AVX-512 kernels do after their dot products: the same bits
//   tiles                     sums [16 tokens][16 rows] of 32 bits; codes and activations of a
//                             block, and of half a block for scales per 16 columns
//   bound                     the vector part: 16 · (load, add, convert, multiply, FMA) against
//                             16 cycles of the tile unit

#include "ops/matmul/amx/tile_unit.h"
#include "ops/matmul/avx512/block.h"
#include "ops/matmul/kernels.h"

#if defined(__x86_64__)

namespace hayate::ops::matmul::amx {

inline constexpr int kTileTokens = 16;

enum Tile : int { kSums, kCodes, kActivations, kHalfCodes, kHalfActivations };

constexpr TileConfig MakeTileConfig() {
  TileConfig config;
  const auto set = [&config](Tile tile, int rows, int row_bytes) {
    config.rows[tile] = static_cast<uint8_t>(rows);
    config.row_bytes[tile] = static_cast<uint16_t>(row_bytes);
  };
  set(kSums, kTileTokens, 4 * kTileRows);
  set(kCodes, kBlock / 4, 4 * kTileRows);
  set(kActivations, kTileTokens, kBlock);
  set(kHalfCodes, kBlock / 8, 4 * kTileRows);
  set(kHalfActivations, kTileTokens, kBlock / 2);
  return config;
}

// sums [16 tokens][16 rows] of kColumns columns; `codes` as they lie in a block, `xq` with `k`
// bytes between tokens.
template <int kColumns, class Unit>
void MultiplyTile(Unit& unit, const std::byte* codes, const int8_t* xq, int64_t k, int32_t* sums) {
  constexpr bool kWhole = kColumns == kBlock;
  constexpr int kB = kWhole ? kCodes : kHalfCodes;
  constexpr int kA = kWhole ? kActivations : kHalfActivations;
  unit.template Zero<kSums>();
  unit.template Load<kB>(codes, 4 * kTileRows);
  unit.template Load<kA>(xq, k);
  unit.template DotSignedUnsigned<kSums, kA, kB>();
  unit.template Store<kSums>(sums, 4 * kTileRows);
}

// 16 rows × the 16 tokens from `token` on.
template <Layout kLayout, class Unit>
HAYATE_AVX512 void RunTile(Unit& unit, const std::byte* tile, const KernelArgs& args, int64_t token,
                           int64_t row) {
  constexpr LayoutInfo kInfo = InfoOf(kLayout);
  constexpr int kGroups = kBlock / kInfo.group;
  const int64_t blocks = args.k / kBlock;
  const std::byte* codes = tile + CodesOffset(kInfo, args.k);
  alignas(64) std::byte unpacked[kBlock * kTileRows];
  alignas(64) int32_t sums[kTileTokens * kTileRows];
  __m512 acc[kTileTokens];
#pragma GCC unroll 16
  for (int t = 0; t < kTileTokens; ++t) acc[t] = _mm512_setzero_ps();
  for (int64_t b = 0; b < blocks; ++b, codes += CodeBlockBytes(kInfo)) {
    const std::byte* bytes = codes;
    if constexpr (kInfo.codes != Codes::kByte) {
      __m512i w[8];
      avx512::LoadCodes<kLayout>(codes, w);
#pragma GCC unroll 8
      for (int g = 0; g < 8; ++g) _mm512_store_si512(unpacked + 4 * kTileRows * g, w[g]);
      bytes = unpacked;
    }
    const int8_t* xq = args.xq + token * args.k + b * kBlock;
    const BlockMeta* meta = args.meta + token * blocks + b;
#pragma GCC unroll 2
    for (int group = 0; group < kGroups; ++group) {
      MultiplyTile<kInfo.group>(unit, bytes + group * kInfo.group * kTileRows,
                                xq + group * kInfo.group, args.k, sums);
      const avx512::ScaleMin scale = avx512::LoadScale<kLayout>(tile, b * kGroups + group);
#pragma GCC unroll 16
      for (int t = 0; t < kTileTokens; ++t) {
        const BlockMeta& m = meta[t * blocks];
        const int32_t neg128 = kGroups == 1 ? m.neg128_sum
                               : group == 0 ? m.neg128_sum_low
                                            : m.neg128_sum_high;
        const float x_sum = kGroups == 1 ? m.scaled_sum
                            : group == 0 ? m.scaled_sum_low
                                         : m.scaled_sum_high;
        const __m512i dot = _mm512_add_epi32(_mm512_load_si512(sums + kTileRows * t),
                                             avx512::StartSum<kLayout>(m, neg128));
        acc[t] = avx512::AddScaled<kLayout>(acc[t], dot, scale, m.scale, x_sum);
      }
    }
  }
  const int64_t valid = args.n - row < kTileRows ? args.n - row : kTileRows;
  const __mmask16 rows = FirstLanes(valid);
  const __m512 bias =
      args.bias == nullptr ? _mm512_setzero_ps() : _mm512_maskz_loadu_ps(rows, args.bias + row);
#pragma GCC unroll 16
  for (int t = 0; t < kTileTokens; ++t) {
    const __m512 sum = args.bias == nullptr ? acc[t] : _mm512_add_ps(acc[t], bias);
    _mm512_mask_storeu_ps(args.out + (token + t) * args.out_stride + row, rows, sum);
  }
}

// All rows × the first whole tiles of tokens; returns how many tokens those were.
template <Layout kLayout, class Unit>
int64_t RunPart(Unit& unit, const KernelArgs& args) {
  const int64_t whole = AlignDown<int64_t>(args.t, kTileTokens);
  if (whole == 0) return 0;
  static constexpr TileConfig kConfig = MakeTileConfig();
  const int64_t tile_bytes = TileBytes(kLayout, args.k);
  unit.Configure(kConfig);
  for (int64_t row = 0; row < args.n; row += kTileRows) {
    const std::byte* tile = args.tiles + row / kTileRows * tile_bytes;
    for (int64_t token = 0; token < whole; token += kTileTokens) {
      RunTile<kLayout>(unit, tile, args, token, row);
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
