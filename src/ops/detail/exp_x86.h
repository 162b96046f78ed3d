#pragma once
// eˣ in vector registers: 2ⁿ · p(r), n = round(x / ln 2), p a polynomial of degree 6
// (Cephes expf). Relative error below 2 · 10⁻⁷; arguments are clamped to where the result is a
// normal float, so −∞ gives 1.2 · 10⁻³⁸ and +∞ gives 2.4 · 10³⁸. NaN stays NaN.

#include "ops/detail/x86.h"

#if defined(__x86_64__)

namespace hayate::ops {

inline constexpr float kExpMin = -87.33654f, kExpMax = 88.37626f;
inline constexpr float kExpLog2e = 1.44269504f;
inline constexpr float kExpLn2High = 0.693359375f, kExpLn2Low = -2.12194440e-4f;
inline constexpr float kExpPoly[6] = {1.9875691500e-4f, 1.3981999507e-3f, 8.3334519073e-3f,
                                      4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f};

HAYATE_AVX512 inline __m512 Exp(__m512 x) {
  // Operand order: min and max return their second operand when either is NaN.
  x = _mm512_min_ps(_mm512_set1_ps(kExpMax), x);
  x = _mm512_max_ps(_mm512_set1_ps(kExpMin), x);
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(kExpLog2e)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kExpLn2High), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(kExpLn2Low), r);
  __m512 p = _mm512_set1_ps(kExpPoly[0]);
  for (int i = 1; i < 6; ++i) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(kExpPoly[i]));
  p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
  return _mm512_scalef_ps(p, n);
}

HAYATE_AVX2 inline __m256 Exp(__m256 x) {
  x = _mm256_min_ps(_mm256_set1_ps(kExpMax), x);
  x = _mm256_max_ps(_mm256_set1_ps(kExpMin), x);
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(kExpLog2e)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kExpLn2High), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(kExpLn2Low), r);
  __m256 p = _mm256_set1_ps(kExpPoly[0]);
  for (int i = 1; i < 6; ++i) p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(kExpPoly[i]));
  p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
  const __m256i scale =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(scale));
}

}  // namespace hayate::ops
#endif
