// Products of fp32, f16 and bf16 weights: fp32 activations and FMA, or VDPBF16PS on pairs of
// columns with activations rounded to bf16. Several tiles at a time, so that one token still gives
// the FMA pipes enough independent sums.
//
// Bound: 1 token, memory; from about 4 tokens on, the FMA pipes (32 or 64 flop a cycle on Zen 4).

#include "ops/matmul/avx512/kernels.h"
#include "ops/matmul/avx512/target.h"

#if defined(__x86_64__)

namespace hayate::ops::matmul::avx512 {
namespace {

// 16 rows of one column (one pair of columns for the bf16 dot).
template <Layout kLayout>
HAYATE_AVX512_INLINE __m512 LoadColumn(const std::byte* tile, int64_t column) {
  if constexpr (kLayout == Layout::kF32 || kLayout == Layout::kBf16Dot) {
    return _mm512_loadu_ps(reinterpret_cast<const float*>(tile) + column * kTileRows);
  } else {
    const __m256i words = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(
        reinterpret_cast<const uint16_t*>(tile) + column * kTileRows));
    if constexpr (kLayout == Layout::kF16) return _mm512_cvtph_ps(words);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16));
  }
}

template <Layout kLayout>
HAYATE_AVX512_INLINE __m512 MultiplyAdd(__m512 w, __m512 x, __m512 acc) {
  if constexpr (kLayout == Layout::kBf16Dot) {
    return DotBf16(acc, w, x);
  } else {
    return _mm512_fmadd_ps(w, x, acc);
  }
}

// kTiles tiles × kTokens tokens. `x` holds one fp32, or one pair of bf16, per step.
template <Layout kLayout, int kTiles, int kTokens>
HAYATE_AVX512 void RunTiles(const std::byte* tiles, const KernelArgs& args, int64_t token,
                            int64_t row) {
  const bool pairs = kLayout == Layout::kBf16Dot;
  const int64_t steps = pairs ? CeilDiv<int64_t>(args.k, 2) : args.k;
  const float* x = (pairs ? reinterpret_cast<const float*>(args.x_bf16) : args.x) + token * steps;
  const int64_t tile_bytes = TileBytes(kLayout, args.k);
  __m512 acc[kTiles][kTokens];
#pragma GCC unroll 8
  for (int r = 0; r < kTiles; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) acc[r][t] = _mm512_setzero_ps();
  }
  for (int64_t step = 0; step < steps; ++step) {
    __m512 w[kTiles];
#pragma GCC unroll 8
    for (int r = 0; r < kTiles; ++r) w[r] = LoadColumn<kLayout>(tiles + r * tile_bytes, step);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const __m512 value = _mm512_set1_ps(x[t * steps + step]);
#pragma GCC unroll 8
      for (int r = 0; r < kTiles; ++r) acc[r][t] = MultiplyAdd<kLayout>(w[r], value, acc[r][t]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTiles; ++r, row += kTileRows) {
    const int64_t valid = args.n - row < kTileRows ? args.n - row : kTileRows;
    const __mmask16 rows = static_cast<__mmask16>((1u << valid) - 1);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      if (args.bias != nullptr) {
        acc[r][t] = _mm512_add_ps(acc[r][t], _mm512_maskz_loadu_ps(rows, args.bias + row));
      }
      _mm512_mask_storeu_ps(args.out + (token + t) * args.out_stride + row, rows, acc[r][t]);
    }
  }
}

template <Layout kLayout, int kTiles>
void RunTokens(const std::byte* tiles, const KernelArgs& args, int64_t row) {
  int64_t token = 0;
  for (; token + 4 <= args.t; token += 4) RunTiles<kLayout, kTiles, 4>(tiles, args, token, row);
  if (token + 2 <= args.t) {
    RunTiles<kLayout, kTiles, 2>(tiles, args, token, row);
    token += 2;
  }
  if (token < args.t) RunTiles<kLayout, kTiles, 1>(tiles, args, token, row);
}

template <Layout kLayout>
void RunPart(const KernelArgs& args) {
  const int64_t tile_bytes = TileBytes(kLayout, args.k);
  const int64_t num_tiles = CeilDiv<int64_t>(args.n, kTileRows);
  int64_t tile = 0;
  for (; tile + 4 <= num_tiles; tile += 4) {
    RunTokens<kLayout, 4>(args.tiles + tile * tile_bytes, args, tile * kTileRows);
  }
  for (; tile < num_tiles; ++tile) {
    RunTokens<kLayout, 1>(args.tiles + tile * tile_bytes, args, tile * kTileRows);
  }
}

}  // namespace

void RunFloat(Layout layout, const KernelArgs& args) {
  switch (layout) {
    case Layout::kF32:
      return RunPart<Layout::kF32>(args);
    case Layout::kF16:
      return RunPart<Layout::kF16>(args);
    case Layout::kBf16:
      return RunPart<Layout::kBf16>(args);
    case Layout::kBf16Dot:
      return RunPart<Layout::kBf16Dot>(args);
    default:
      return;
  }
}

}  // namespace hayate::ops::matmul::avx512

#endif  // __x86_64__
