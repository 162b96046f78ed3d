#include "ops/matmul/f8_kernels.h"

#include <algorithm>

#include "ops/detail/x86.h"
#include "tensor/float16.h"

namespace hayate::ops::matmul {
namespace {

// From the start of a tile to its codes.
int64_t CodesAt(int64_t k) { return CodesOffset(InfoOf(Layout::kF8), AlignUp<int64_t>(k, kBlock)); }

void RunPlain(const KernelArgs& args) {
  const int64_t tile_bytes = TileBytes(Layout::kF8, args.k), codes_at = CodesAt(args.k);
  for (int64_t t = 0; t < args.t; ++t) {
    const float* x = args.x + t * args.k;
    for (int64_t row = 0; row < args.n; ++row) {
      const std::byte* tile = args.tiles + row / kTileRows * tile_bytes;
      const int64_t lane = row % kTileRows;
      float acc = 0.0f;
      for (int64_t begin = 0; begin < args.k; begin += kBlock) {
        float dot = 0.0f;
        for (int64_t i = begin; i < std::min<int64_t>(begin + kBlock, args.k); ++i) {
          const std::byte code = tile[codes_at + i * kTileRows + lane];
          dot += F8E4M3ToFloat(static_cast<uint8_t>(code)) * x[i];
        }
        acc += reinterpret_cast<const float*>(tile)[begin / kBlock * kTileRows + lane] * dot;
      }
      args.out[t * args.out_stride + row] = args.bias == nullptr ? acc : acc + args.bias[row];
    }
  }
}

bool RunsAnywhere(const CpuFeatures&) { return true; }

#if defined(__x86_64__)

bool RunsOnAvx2(const CpuFeatures& features) { return features.avx2; }
bool RunsOnAvx512(const CpuFeatures& features) { return features.avx512; }

// An E4M3 code moved into a half is its value divided by 2⁸: sign to the top, the rest 7 bits up,
// subnormals too. NaN codes do not get here: loaders refuse them.
constexpr float kHalfToF8 = 256.0f;

HAYATE_AVX512 __attribute__((always_inline)) inline __m512 LoadCodes512(const std::byte* codes) {
  const __m256i wide =
      _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x80)), 8);
  const __m256i rest = _mm256_slli_epi16(_mm256_and_si256(wide, _mm256_set1_epi16(0x7F)), 7);
  return _mm512_cvtph_ps(_mm256_or_si256(sign, rest));
}

// kTiles tiles × kTokens tokens.
template <int kTiles, int kTokens>
HAYATE_AVX512 void RunTiles512(const std::byte* tiles, const KernelArgs& args, int64_t token,
                               int64_t row) {
  const int64_t tile_bytes = TileBytes(Layout::kF8, args.k), codes_at = CodesAt(args.k);
  const float* x = args.x + token * args.k;
  __m512 acc[kTiles][kTokens];
#pragma GCC unroll 8
  for (int r = 0; r < kTiles; ++r) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) acc[r][t] = _mm512_setzero_ps();
  }
  for (int64_t begin = 0; begin < args.k; begin += kBlock) {
    const int64_t end = args.k - begin < kBlock ? args.k : begin + kBlock;
    __m512 dot[kTiles][kTokens];
#pragma GCC unroll 8
    for (int r = 0; r < kTiles; ++r) {
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) dot[r][t] = _mm512_setzero_ps();
    }
    for (int64_t i = begin; i < end; ++i) {
      __m512 w[kTiles];
#pragma GCC unroll 8
      for (int r = 0; r < kTiles; ++r) {
        w[r] = LoadCodes512(tiles + r * tile_bytes + codes_at + i * kTileRows);
      }
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
        const __m512 value = _mm512_set1_ps(x[t * args.k + i]);
#pragma GCC unroll 8
        for (int r = 0; r < kTiles; ++r) dot[r][t] = _mm512_fmadd_ps(w[r], value, dot[r][t]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kTiles; ++r) {
      const float* scales =
          reinterpret_cast<const float*>(tiles + r * tile_bytes) + begin / kBlock * kTileRows;
      const __m512 scale = _mm512_mul_ps(_mm512_loadu_ps(scales), _mm512_set1_ps(kHalfToF8));
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) acc[r][t] = _mm512_fmadd_ps(scale, dot[r][t], acc[r][t]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kTiles; ++r, row += kTileRows) {
    const __mmask16 rows = FirstLanes(args.n - row < kTileRows ? args.n - row : kTileRows);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      if (args.bias != nullptr) {
        acc[r][t] = _mm512_add_ps(acc[r][t], _mm512_maskz_loadu_ps(rows, args.bias + row));
      }
      _mm512_mask_storeu_ps(args.out + (token + t) * args.out_stride + row, rows, acc[r][t]);
    }
  }
}

template <int kTiles>
void RunTokens512(const std::byte* tiles, const KernelArgs& args, int64_t row) {
  int64_t token = 0;
  for (; token + 4 <= args.t; token += 4) RunTiles512<kTiles, 4>(tiles, args, token, row);
  for (; token < args.t; ++token) RunTiles512<kTiles, 1>(tiles, args, token, row);
}

void Run512(const KernelArgs& args) {
  const int64_t tile_bytes = TileBytes(Layout::kF8, args.k);
  const int64_t num_tiles = CeilDiv<int64_t>(args.n, kTileRows);
  int64_t tile = 0;
  for (; tile + 2 <= num_tiles; tile += 2) {
    RunTokens512<2>(args.tiles + tile * tile_bytes, args, tile * kTileRows);
  }
  for (; tile < num_tiles; ++tile) {
    RunTokens512<1>(args.tiles + tile * tile_bytes, args, tile * kTileRows);
  }
}

HAYATE_AVX2 __attribute__((always_inline)) inline __m256 LoadCodes256(const std::byte* codes) {
  const __m128i wide = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)));
  const __m128i sign = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x80)), 8);
  const __m128i rest = _mm_slli_epi16(_mm_and_si128(wide, _mm_set1_epi16(0x7F)), 7);
  return _mm256_cvtph_ps(_mm_or_si128(sign, rest));
}

// Half a tile, `kTokens` tokens.
template <int kTokens>
HAYATE_AVX2 void RunHalf256(const std::byte* tile, int lane, const KernelArgs& args, int64_t token,
                            int64_t row) {
  const std::byte* codes = tile + CodesAt(args.k) + lane;
  const float* x = args.x + token * args.k;
  __m256 acc[kTokens];
#pragma GCC unroll 4
  for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_setzero_ps();
  for (int64_t begin = 0; begin < args.k; begin += kBlock) {
    const int64_t end = args.k - begin < kBlock ? args.k : begin + kBlock;
    __m256 dot[kTokens];
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) dot[t] = _mm256_setzero_ps();
    for (int64_t i = begin; i < end; ++i) {
      const __m256 w = LoadCodes256(codes + i * kTileRows);
#pragma GCC unroll 4
      for (int t = 0; t < kTokens; ++t) {
        dot[t] = _mm256_fmadd_ps(w, _mm256_set1_ps(x[t * args.k + i]), dot[t]);
      }
    }
    const float* scales = reinterpret_cast<const float*>(tile) + begin / kBlock * kTileRows + lane;
    const __m256 scale = _mm256_mul_ps(_mm256_loadu_ps(scales), _mm256_set1_ps(kHalfToF8));
#pragma GCC unroll 4
    for (int t = 0; t < kTokens; ++t) acc[t] = _mm256_fmadd_ps(scale, dot[t], acc[t]);
  }
  const int64_t valid = std::min<int64_t>(8, args.n - row);
  for (int t = 0; t < kTokens; ++t) {
    float sums[8];
    _mm256_storeu_ps(sums, acc[t]);
    float* out = args.out + (token + t) * args.out_stride + row;
    for (int64_t i = 0; i < valid; ++i) {
      out[i] = args.bias == nullptr ? sums[i] : sums[i] + args.bias[row + i];
    }
  }
}

void Run256(const KernelArgs& args) {
  const int64_t tile_bytes = TileBytes(Layout::kF8, args.k);
  for (int64_t row = 0; row < args.n; row += 8) {
    const std::byte* tile = args.tiles + row / kTileRows * tile_bytes;
    const int lane = static_cast<int>(row % kTileRows);
    int64_t token = 0;
    for (; token + 4 <= args.t; token += 4) RunHalf256<4>(tile, lane, args, token, row);
    for (; token < args.t; ++token) RunHalf256<1>(tile, lane, args, token, row);
  }
}

constexpr F8Kernel kKernels[] = {
    {"avx512", RunsOnAvx512, Run512},
    {"avx2", RunsOnAvx2, Run256},
    {"plain", RunsAnywhere, RunPlain},
};
#else
constexpr F8Kernel kKernels[] = {{"plain", RunsAnywhere, RunPlain}};
#endif

}  // namespace

std::span<const F8Kernel> AllF8Kernels() { return kKernels; }

void RunF8(const KernelArgs& args) {
  static const F8Kernel& best = *std::ranges::find_if(
      kKernels, [](const F8Kernel& kernel) { return kernel.runs_on(DetectCpuFeatures()); });
  best.run(args);
}

}  // namespace hayate::ops::matmul
