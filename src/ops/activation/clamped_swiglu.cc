#include "ops/activation/clamped_swiglu.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "ops/activation/sm90/clamped_swiglu.h"
#include "ops/detail/exp_x86.h"
#include "ops/detail/x86.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {
namespace {

// What clamps nothing where the form has no limit. Comparisons are ordered so that NaN stays.
float LimitOf(const SwiGluForm& form) {
  return form.limit > 0.0f ? form.limit : std::numeric_limits<float>::infinity();
}

void RowPlain(float* out, const float* gate, const float* up, int64_t width,
              const SwiGluForm& form) {
  const float limit = LimitOf(form);
  for (int64_t i = 0; i < width; ++i) {
    const float g = gate[i] > limit ? limit : gate[i];
    const float u = up[i] > limit ? limit : up[i] < -limit ? -limit : up[i];
    out[i] = g / (1.0f + std::exp(-form.alpha * g)) * (u + form.up_shift);
  }
}

bool RunsAnywhere(const CpuFeatures&) { return true; }

#if defined(__x86_64__)

bool RunsOnAvx2(const CpuFeatures& features) { return features.avx2; }
bool RunsOnAvx512(const CpuFeatures& features) { return features.avx512; }

HAYATE_AVX512 void Row512(float* out, const float* gate, const float* up, int64_t width,
                          const SwiGluForm& form) {
  const __m512 one = _mm512_set1_ps(1.0f), shift = _mm512_set1_ps(form.up_shift);
  const __m512 alpha = _mm512_set1_ps(-form.alpha);
  const __m512 high = _mm512_set1_ps(LimitOf(form)), low = _mm512_set1_ps(-LimitOf(form));
  for (int64_t i = 0; i < width; i += 16) {
    const __mmask16 lanes = FirstLanes(width - i < 16 ? width - i : 16);
    // min and max return their second operand when either is NaN.
    const __m512 g = _mm512_min_ps(high, _mm512_maskz_loadu_ps(lanes, gate + i));
    const __m512 u = _mm512_max_ps(low, _mm512_min_ps(high, _mm512_maskz_loadu_ps(lanes, up + i)));
    const __m512 denominator = _mm512_add_ps(one, Exp(_mm512_mul_ps(alpha, g)));
    _mm512_mask_storeu_ps(out + i, lanes,
                          _mm512_mul_ps(_mm512_div_ps(g, denominator), _mm512_add_ps(u, shift)));
  }
}

HAYATE_AVX2 void Row256(float* out, const float* gate, const float* up, int64_t width,
                        const SwiGluForm& form) {
  const __m256 one = _mm256_set1_ps(1.0f), shift = _mm256_set1_ps(form.up_shift);
  const __m256 alpha = _mm256_set1_ps(-form.alpha);
  const __m256 high = _mm256_set1_ps(LimitOf(form)), low = _mm256_set1_ps(-LimitOf(form));
  for (int64_t i = 0; i < width; i += 8) {
    const int64_t count = std::min<int64_t>(8, width - i);
    float gates[8] = {}, ups[8] = {}, result[8];
    std::copy_n(gate + i, count, gates);
    std::copy_n(up + i, count, ups);
    const __m256 g = _mm256_min_ps(high, _mm256_loadu_ps(gates));
    const __m256 u = _mm256_max_ps(low, _mm256_min_ps(high, _mm256_loadu_ps(ups)));
    const __m256 denominator = _mm256_add_ps(one, Exp(_mm256_mul_ps(alpha, g)));
    _mm256_storeu_ps(result, _mm256_mul_ps(_mm256_div_ps(g, denominator), _mm256_add_ps(u, shift)));
    std::copy_n(result, count, out + i);
  }
}

constexpr ClampedSwiGluKernel kKernels[] = {
    {"avx512", RunsOnAvx512, Row512},
    {"avx2", RunsOnAvx2, Row256},
    {"plain", RunsAnywhere, RowPlain},
};
#else
constexpr ClampedSwiGluKernel kKernels[] = {{"plain", RunsAnywhere, RowPlain}};
#endif

void RunRows(const ClampedSwiGluKernel& kernel, const ClampedSwiGluArgs& args) {
  const int64_t width = args.out.cols();
  DCHECK_EQ(args.gate_up.cols(), 2 * width);
  for (int64_t t = 0; t < args.out.rows(); ++t) {
    const float* gate = args.gate_up.as<float>() + t * 2 * width;
    kernel.row(args.out.as<float>() + t * width, gate, gate + width, width, args.form);
  }
}

}  // namespace

std::span<const ClampedSwiGluKernel> AllClampedSwiGluKernels() { return kKernels; }

void ClampedSwiGlu(Stream stream, const ClampedSwiGluArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::ClampedSwiGlu(stream, args);
  }
  static const ClampedSwiGluKernel& chosen = *std::ranges::find_if(
      kKernels, [](const auto& kernel) { return kernel.runs_on(DetectCpuFeatures()); });
  RunRows(chosen, args);
}

void ClampedSwiGluReference(const ClampedSwiGluArgs& args) {
  RunRows({"plain", RunsAnywhere, RowPlain}, args);
}

}  // namespace hayate::ops
