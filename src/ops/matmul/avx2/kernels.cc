#include "ops/matmul/avx2/kernels.h"

#include "ops/detail/x86.h"
#include "ops/matmul/quantize.h"

#if defined(__x86_64__)

namespace hayate::ops::matmul::avx2 {
namespace {

// 8 rows of one column of a float tile, as fp32.
template <Layout kLayout>
HAYATE_AVX2 __attribute__((always_inline)) inline __m256 LoadColumn(const std::byte* tile,
                                                                    int64_t index) {
  if constexpr (kLayout == Layout::kF32) {
    return _mm256_loadu_ps(reinterpret_cast<const float*>(tile) + index);
  } else {
    const __m128i words = _mm_loadu_si128(
        reinterpret_cast<const __m128i*>(reinterpret_cast<const uint16_t*>(tile) + index));
    if constexpr (kLayout == Layout::kF16) return _mm256_cvtph_ps(words);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
  }
}

// One tile × kTokens tokens.
template <Layout kLayout, int kTokens>
HAYATE_AVX2 void RunFloatTile(const std::byte* tile, const KernelArgs& args, int64_t token,
                              int64_t row) {
  const float* x = args.x + token * args.k;
  __m256 acc[kTokens][2];
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) acc[t][0] = acc[t][1] = _mm256_setzero_ps();
  for (int64_t column = 0; column < args.k; ++column) {
    const __m256 low = LoadColumn<kLayout>(tile, column * kTileRows);
    const __m256 high = LoadColumn<kLayout>(tile, column * kTileRows + 8);
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) {
      const __m256 value = _mm256_set1_ps(x[t * args.k + column]);
      acc[t][0] = _mm256_fmadd_ps(low, value, acc[t][0]);
      acc[t][1] = _mm256_fmadd_ps(high, value, acc[t][1]);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) {
    float sums[kTileRows];
    _mm256_storeu_ps(sums, acc[t][0]);
    _mm256_storeu_ps(sums + 8, acc[t][1]);
    float* out = args.out + (token + t) * args.out_stride + row;
    for (int64_t i = 0; i < (args.n - row < kTileRows ? args.n - row : kTileRows); ++i) {
      out[i] = args.bias == nullptr ? sums[i] : sums[i] + args.bias[row + i];
    }
  }
}

template <Layout kLayout>
void RunFloatPart(const KernelArgs& args) {
  const int64_t tile_bytes = TileBytes(kLayout, args.k);
  for (int64_t row = 0; row < args.n; row += kTileRows) {
    const std::byte* tile = args.tiles + row / kTileRows * tile_bytes;
    int64_t t = 0;
    for (; t + 4 <= args.t; t += 4) RunFloatTile<kLayout, 4>(tile, args, t, row);
    for (; t < args.t; ++t) RunFloatTile<kLayout, 1>(tile, args, t, row);
  }
}

// The same bits as QuantizeBlock.
HAYATE_AVX2 void Quantize(const float* x, int64_t t, int64_t k, int8_t* xq, BlockMeta* meta) {
  const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  for (int64_t b = 0; b < t * k / kBlock; ++b, x += kBlock, xq += kBlock) {
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < kBlock; i += 8) {
      const __m256 absolute = _mm256_and_ps(_mm256_loadu_ps(x + i), magnitude);
      top = _mm256_max_epi32(top, _mm256_castps_si256(absolute));
    }
    alignas(32) int32_t tops[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(tops), top);
    int32_t highest = 0;
    for (const int32_t value : tops) highest = value > highest ? value : highest;
    const float max = __builtin_bit_cast(float, highest);
    if (highest >= 0x7F800000 || max < kSmallestActivation) {
      meta[b] = QuantizeBlock(x, xq);
      continue;
    }
    const __m256 factor = _mm256_set1_ps(127.0f / max);
    alignas(32) int32_t codes[kBlock];
    int32_t sum[2] = {0, 0};
    for (int i = 0; i < kBlock; i += 8) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(codes + i),
                         _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + i), factor)));
    }
    for (int i = 0; i < kBlock; ++i) {
      xq[i] = static_cast<int8_t>(codes[i]);
      sum[i / 16] += codes[i];
    }
    meta[b] = MakeMeta(max / 127.0f, sum[0], sum[1]);
  }
}

bool RunsOnAvx2(const CpuFeatures& features) { return features.avx2; }

void Run(Layout layout, const KernelArgs& args) {
  switch (layout) {
    case Layout::kF32:
      return RunFloatPart<Layout::kF32>(args);
    case Layout::kF16:
      return RunFloatPart<Layout::kF16>(args);
    case Layout::kBf16:
      return RunFloatPart<Layout::kBf16>(args);
    case Layout::kBf16Dot:
      // Never packed for this implementation; read as the portable one does.
      return PlainKernels().run(layout, args);
    default:
      return RunInt8(layout, args);
  }
}

}  // namespace

const Kernels& Avx2Kernels() {
  static const Kernels kKernels = {
      .name = "avx2",
      .runs_on = RunsOnAvx2,
      .bf16_dot = false,
      .quantize = Quantize,
      .to_bf16 = PlainKernels().to_bf16,
      .run = Run,
  };
  return kKernels;
}

}  // namespace hayate::ops::matmul::avx2

#endif  // __x86_64__
