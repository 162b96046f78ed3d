#include <cmath>

#include "ops/detail/x86.h"
#include "ops/norm/detail/kernels.h"

namespace hayate::ops {
namespace {

// The width is summed in lanes, then across lanes: an order that depends on the width alone.
float Scale(float squares, float eps, int64_t width) {
  return 1.0f / std::sqrt(squares / static_cast<float>(width) + eps);
}

void NormPlain(float* out, const float* x, const float* weight, float eps, int64_t width) {
  float squares = 0.0f;
  for (int64_t i = 0; i < width; ++i) squares += x[i] * x[i];
  const float scale = Scale(squares, eps, width);
  for (int64_t i = 0; i < width; ++i) out[i] = x[i] * scale * weight[i];
}

void AddNormPlain(float* out, float* residual, const float* x, const float* weight, float eps,
                  int64_t width) {
  for (int64_t i = 0; i < width; ++i) residual[i] += x[i];
  NormPlain(out, residual, weight, eps, width);
}

bool RunsAnywhere(const CpuFeatures&) { return true; }

#if defined(__x86_64__)

bool RunsOnAvx2(const CpuFeatures& features) { return features.avx2; }
bool RunsOnAvx512(const CpuFeatures& features) { return features.avx512; }

HAYATE_AVX512 void Apply512(float* out, const float* x, const float* weight, float scale,
                            int64_t width) {
  const __m512 s = _mm512_set1_ps(scale);
  for (int64_t i = 0; i < width; i += 16) {
    const __mmask16 lanes = FirstLanes(width - i < 16 ? width - i : 16);
    const __m512 scaled = _mm512_mul_ps(_mm512_maskz_loadu_ps(lanes, x + i), s);
    _mm512_mask_storeu_ps(out + i, lanes,
                          _mm512_mul_ps(scaled, _mm512_maskz_loadu_ps(lanes, weight + i)));
  }
}

HAYATE_AVX512 void Norm512(float* out, const float* x, const float* weight, float eps,
                           int64_t width) {
  __m512 a = _mm512_setzero_ps(), b = _mm512_setzero_ps();
  int64_t i = 0;
  for (; i + 32 <= width; i += 32) {
    const __m512 x0 = _mm512_loadu_ps(x + i), x1 = _mm512_loadu_ps(x + i + 16);
    a = _mm512_fmadd_ps(x0, x0, a);
    b = _mm512_fmadd_ps(x1, x1, b);
  }
  for (; i < width; i += 16) {
    const __m512 x0 = _mm512_maskz_loadu_ps(FirstLanes(width - i < 16 ? width - i : 16), x + i);
    a = _mm512_fmadd_ps(x0, x0, a);
  }
  const float squares = _mm512_reduce_add_ps(_mm512_add_ps(a, b));
  Apply512(out, x, weight, Scale(squares, eps, width), width);
}

HAYATE_AVX512 void AddNorm512(float* out, float* residual, const float* x, const float* weight,
                              float eps, int64_t width) {
  __m512 squares = _mm512_setzero_ps();
  for (int64_t i = 0; i < width; i += 16) {
    const __mmask16 lanes = FirstLanes(width - i < 16 ? width - i : 16);
    const __m512 sum = _mm512_add_ps(_mm512_maskz_loadu_ps(lanes, residual + i),
                                     _mm512_maskz_loadu_ps(lanes, x + i));
    _mm512_mask_storeu_ps(residual + i, lanes, sum);
    squares = _mm512_fmadd_ps(sum, sum, squares);
  }
  const float scale = Scale(_mm512_reduce_add_ps(squares), eps, width);
  Apply512(out, residual, weight, scale, width);
}

HAYATE_AVX2 float Sum256(__m256 v) {
  __m128 sum = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
  return _mm_cvtss_f32(_mm_add_ss(sum, _mm_shuffle_ps(sum, sum, 1)));
}

HAYATE_AVX2 void Norm256(float* out, const float* x, const float* weight, float eps,
                         int64_t width) {
  __m256 a = _mm256_setzero_ps(), b = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + 16 <= width; i += 16) {
    const __m256 x0 = _mm256_loadu_ps(x + i), x1 = _mm256_loadu_ps(x + i + 8);
    a = _mm256_fmadd_ps(x0, x0, a);
    b = _mm256_fmadd_ps(x1, x1, b);
  }
  float squares = Sum256(_mm256_add_ps(a, b));
  for (; i < width; ++i) squares += x[i] * x[i];

  const float scale = Scale(squares, eps, width);
  const __m256 s = _mm256_set1_ps(scale);
  for (i = 0; i + 8 <= width; i += 8) {
    _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), s),
                                            _mm256_loadu_ps(weight + i)));
  }
  for (; i < width; ++i) out[i] = x[i] * scale * weight[i];
}

HAYATE_AVX2 void AddNorm256(float* out, float* residual, const float* x, const float* weight,
                            float eps, int64_t width) {
  int64_t i = 0;
  for (; i + 8 <= width; i += 8) {
    _mm256_storeu_ps(residual + i,
                     _mm256_add_ps(_mm256_loadu_ps(residual + i), _mm256_loadu_ps(x + i)));
  }
  for (; i < width; ++i) residual[i] += x[i];
  Norm256(out, residual, weight, eps, width);
}

constexpr NormKernels kKernels[] = {
    {"avx512", RunsOnAvx512, Norm512, AddNorm512},
    {"avx2", RunsOnAvx2, Norm256, AddNorm256},
    {"plain", RunsAnywhere, NormPlain, AddNormPlain},
};
#else
constexpr NormKernels kKernels[] = {{"plain", RunsAnywhere, NormPlain, AddNormPlain}};
#endif

}  // namespace

std::span<const NormKernels> AllNormKernels() { return kKernels; }

}  // namespace hayate::ops
