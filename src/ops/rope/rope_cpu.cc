#include "ops/detail/x86.h"
#include "ops/rope/detail/kernels.h"

namespace hayate::ops {
namespace {

void HalvesPlain(float* head, const float* cos, const float* sin, int32_t pairs) {
  for (int32_t i = 0; i < pairs; ++i) {
    const float a = head[i], b = head[i + pairs];
    head[i] = a * cos[i] - b * sin[i];
    head[i + pairs] = b * cos[i] + a * sin[i];
  }
}

void InterleavedPlain(float* head, const float* cos, const float* sin, int32_t pairs) {
  for (int32_t i = 0; i < pairs; ++i) {
    const float a = head[2 * i], b = head[2 * i + 1];
    head[2 * i] = a * cos[i] - b * sin[i];
    head[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

bool RunsAnywhere(const CpuFeatures&) { return true; }

#if defined(__x86_64__)

bool RunsOnAvx2(const CpuFeatures& features) { return features.avx2; }
bool RunsOnAvx512(const CpuFeatures& features) { return features.avx512; }

HAYATE_AVX512 void Halves512(float* head, const float* cos, const float* sin, int32_t pairs) {
  for (int32_t i = 0; i < pairs; i += 16) {
    const __mmask16 lanes = FirstLanes(pairs - i < 16 ? pairs - i : 16);
    const __m512 c = _mm512_maskz_loadu_ps(lanes, cos + i);
    const __m512 s = _mm512_maskz_loadu_ps(lanes, sin + i);
    const __m512 a = _mm512_maskz_loadu_ps(lanes, head + i);
    const __m512 b = _mm512_maskz_loadu_ps(lanes, head + i + pairs);
    _mm512_mask_storeu_ps(head + i, lanes, _mm512_fmsub_ps(a, c, _mm512_mul_ps(b, s)));
    _mm512_mask_storeu_ps(head + i + pairs, lanes, _mm512_fmadd_ps(b, c, _mm512_mul_ps(a, s)));
  }
}

// Eight pairs a vector: cos and sin are doubled to both lanes of their pair, the pair's lanes
// swapped for the sine's part.
HAYATE_AVX512 void Interleaved512(float* head, const float* cos, const float* sin, int32_t pairs) {
  const __m512i twice = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  for (int32_t i = 0; i < pairs; i += 8) {
    const int32_t count = pairs - i < 8 ? pairs - i : 8;
    const __mmask16 of_pairs = FirstLanes(count), lanes = FirstLanes(2 * count);
    const __m512 c = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(of_pairs, cos + i));
    const __m512 s = _mm512_permutexvar_ps(twice, _mm512_maskz_loadu_ps(of_pairs, sin + i));
    const __m512 x = _mm512_maskz_loadu_ps(lanes, head + 2 * i);
    const __m512 swapped = _mm512_permute_ps(x, 0xB1);
    _mm512_mask_storeu_ps(head + 2 * i, lanes, _mm512_fmaddsub_ps(x, c, _mm512_mul_ps(swapped, s)));
  }
}

HAYATE_AVX2 void Halves256(float* head, const float* cos, const float* sin, int32_t pairs) {
  int32_t i = 0;
  for (; i + 8 <= pairs; i += 8) {
    const __m256 c = _mm256_loadu_ps(cos + i), s = _mm256_loadu_ps(sin + i);
    const __m256 a = _mm256_loadu_ps(head + i), b = _mm256_loadu_ps(head + i + pairs);
    _mm256_storeu_ps(head + i, _mm256_fmsub_ps(a, c, _mm256_mul_ps(b, s)));
    _mm256_storeu_ps(head + i + pairs, _mm256_fmadd_ps(b, c, _mm256_mul_ps(a, s)));
  }
  for (; i < pairs; ++i) {
    const float a = head[i], b = head[i + pairs];
    head[i] = a * cos[i] - b * sin[i];
    head[i + pairs] = b * cos[i] + a * sin[i];
  }
}

HAYATE_AVX2 void Interleaved256(float* head, const float* cos, const float* sin, int32_t pairs) {
  int32_t i = 0;
  for (; i + 4 <= pairs; i += 4) {
    const __m256i twice = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    const __m256 c = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(cos + i)), twice);
    const __m256 s = _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(sin + i)), twice);
    const __m256 x = _mm256_loadu_ps(head + 2 * i);
    const __m256 swapped = _mm256_permute_ps(x, 0xB1);
    _mm256_storeu_ps(head + 2 * i, _mm256_fmaddsub_ps(x, c, _mm256_mul_ps(swapped, s)));
  }
  InterleavedPlain(head + 2 * i, cos + i, sin + i, pairs - i);
}

constexpr RopeKernels kKernels[] = {
    {"avx512", RunsOnAvx512, Halves512, Interleaved512},
    {"avx2", RunsOnAvx2, Halves256, Interleaved256},
    {"plain", RunsAnywhere, HalvesPlain, InterleavedPlain},
};
#else
constexpr RopeKernels kKernels[] = {{"plain", RunsAnywhere, HalvesPlain, InterleavedPlain}};
#endif

}  // namespace

std::span<const RopeKernels> AllRopeKernels() { return kKernels; }

}  // namespace hayate::ops
