#include "ops/activation/swiglu.h"

#include <cmath>

#include "ops/activation/detail/kernels.h"
#include "ops/activation/sm90/swiglu.h"
#include "ops/detail/exp_x86.h"
#include "ops/detail/x86.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {
namespace {

void RowPlain(float* out, const float* gate, const float* up, int64_t width) {
  for (int64_t i = 0; i < width; ++i) out[i] = gate[i] / (1.0f + std::exp(-gate[i])) * up[i];
}

bool RunsAnywhere(const CpuFeatures&) { return true; }

#if defined(__x86_64__)

bool RunsOnAvx2(const CpuFeatures& features) { return features.avx2; }
bool RunsOnAvx512(const CpuFeatures& features) { return features.avx512; }

HAYATE_AVX512 void Row512(float* out, const float* gate, const float* up, int64_t width) {
  const __m512 one = _mm512_set1_ps(1.0f);
  for (int64_t i = 0; i < width; i += 16) {
    const __mmask16 lanes = FirstLanes(width - i < 16 ? width - i : 16);
    const __m512 g = _mm512_maskz_loadu_ps(lanes, gate + i);
    const __m512 denominator = _mm512_add_ps(one, Exp(_mm512_sub_ps(_mm512_setzero_ps(), g)));
    const __m512 silu = _mm512_div_ps(g, denominator);
    _mm512_mask_storeu_ps(out + i, lanes,
                          _mm512_mul_ps(silu, _mm512_maskz_loadu_ps(lanes, up + i)));
  }
}

HAYATE_AVX2 __m256 SwiGlu256(__m256 gate, __m256 up) {
  const __m256 denominator =
      _mm256_add_ps(_mm256_set1_ps(1.0f), Exp(_mm256_sub_ps(_mm256_setzero_ps(), gate)));
  return _mm256_mul_ps(_mm256_div_ps(gate, denominator), up);
}

HAYATE_AVX2 void Row256(float* out, const float* gate, const float* up, int64_t width) {
  int64_t i = 0;
  for (; i + 8 <= width; i += 8) {
    _mm256_storeu_ps(out + i, SwiGlu256(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
  }
  if (i == width) return;
  float g[8] = {}, u[8] = {}, result[8];
  for (int64_t j = i; j < width; ++j) g[j - i] = gate[j], u[j - i] = up[j];
  _mm256_storeu_ps(result, SwiGlu256(_mm256_loadu_ps(g), _mm256_loadu_ps(u)));
  for (int64_t j = i; j < width; ++j) out[j] = result[j - i];
}

constexpr SwiGluKernel kKernels[] = {
    {"avx512", RunsOnAvx512, Row512},
    {"avx2", RunsOnAvx2, Row256},
    {"plain", RunsAnywhere, RowPlain},
};
#else
constexpr SwiGluKernel kKernels[] = {{"plain", RunsAnywhere, RowPlain}};
#endif

const SwiGluKernel& Chosen() {
  static const SwiGluKernel& chosen = []() -> const SwiGluKernel& {
    for (const SwiGluKernel& kernel : kKernels) {
      if (kernel.runs_on(DetectCpuFeatures())) return kernel;
    }
    CHECK(false) << "no kernel runs anywhere";
    __builtin_unreachable();
  }();
  return chosen;
}

}  // namespace

std::span<const SwiGluKernel> AllSwiGluKernels() { return kKernels; }

void SwiGlu(Stream stream, const SwiGluArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::SwiGlu(stream, args);
  }
  const int64_t width = args.out.cols();
  DCHECK(!args.fp8.wanted());
  DCHECK_EQ(args.gate_up.cols(), 2 * width);
  const int64_t rows = args.out.rows();
  const SwiGluKernel& kernel = Chosen();
  for (int64_t t = 0; t < rows; ++t) {
    const float* gate = args.gate_up.as<float>() + t * 2 * width;
    kernel.row(args.out.as<float>() + t * width, gate, gate + width, width);
  }
}

void SwiGluReference(const SwiGluArgs& args) {
  const int64_t width = args.out.cols();
  for (int64_t t = 0; t < args.out.rows(); ++t) {
    const float* gate = args.gate_up.as<float>() + t * 2 * width;
    RowPlain(args.out.as<float>() + t * width, gate, gate + width, width);
  }
}

}  // namespace hayate::ops
