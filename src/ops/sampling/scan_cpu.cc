#include <limits>

#include "ops/detail/x86.h"
#include "ops/sampling/detail/mass.h"
#include "ops/sampling/detail/scan.h"

namespace hayate::ops::sampling {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

Highest HighestPlain(const float* logits, int64_t count) {
  Highest result = {kMinusInfinity, false};
  for (int64_t i = 0; i < count; ++i) {
    if (logits[i] > result.logit) result.logit = logits[i];
    result.has_nan |= logits[i] != logits[i];
  }
  return result;
}

int64_t FindPlain(const float* logits, int64_t count, float value) {
  int64_t i = 0;
  while (i < count && logits[i] != value) ++i;
  return i;
}

int64_t CountAbovePlain(const float* logits, int64_t count, float value) {
  int64_t above = 0;
  for (int64_t i = 0; i < count; ++i) above += logits[i] > value;
  return above;
}

uint64_t SumMassPlain(const float* logits, int64_t count, float highest, float inv_temperature,
                      uint64_t least) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t mass = Mass((logits[i] - highest) * inv_temperature);
    if (mass >= least) sum += mass;
  }
  return sum;
}

int64_t CollectPlain(const float* logits, int64_t count, float threshold, uint64_t* keys,
                     int64_t capacity, int64_t* next) {
  int64_t size = 0, i = *next;
  for (; i < count && size + kCollectSlack <= capacity; ++i) {
    if (logits[i] >= threshold) keys[size++] = KeyOf(logits[i], i);
  }
  *next = i;
  return size;
}

bool RunsAnywhere(const CpuFeatures&) { return true; }

#if defined(__x86_64__)

bool RunsOnAvx2(const CpuFeatures& features) { return features.avx2; }
bool RunsOnAvx512(const CpuFeatures& features) { return features.avx512; }

HAYATE_AVX512 Highest Highest512(const float* logits, int64_t count) {
  __m512 a = _mm512_set1_ps(kMinusInfinity), b = a;
  __mmask16 nan = 0;
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    const __m512 x = _mm512_loadu_ps(logits + i), y = _mm512_loadu_ps(logits + i + 16);
    nan |= _mm512_cmp_ps_mask(x, y, _CMP_UNORD_Q);
    a = _mm512_max_ps(a, x);
    b = _mm512_max_ps(b, y);
  }
  a = _mm512_max_ps(a, b);
  const Highest rest = HighestPlain(logits + i, count - i);
  const float highest = _mm512_reduce_max_ps(a);
  return {highest > rest.logit ? highest : rest.logit, nan != 0 || rest.has_nan};
}

HAYATE_AVX512 int64_t Find512(const float* logits, int64_t count, float value) {
  const __m512 v = _mm512_set1_ps(value);
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 lanes = FirstLanes(count - i < 16 ? count - i : 16);
    const __mmask16 equal =
        _mm512_mask_cmp_ps_mask(lanes, _mm512_maskz_loadu_ps(lanes, logits + i), v, _CMP_EQ_OQ);
    if (equal != 0) return i + __builtin_ctz(equal);
  }
  return count;
}

HAYATE_AVX512 int64_t CountAbove512(const float* logits, int64_t count, float value) {
  const __m512 v = _mm512_set1_ps(value);
  int64_t above = 0;
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 lanes = FirstLanes(count - i < 16 ? count - i : 16);
    above += __builtin_popcount(
        _mm512_mask_cmp_ps_mask(lanes, _mm512_maskz_loadu_ps(lanes, logits + i), v, _CMP_GT_OQ));
  }
  return above;
}

HAYATE_AVX512 __m512i MassesAtLeast(__m256 masses, __m512i least) {
  const __m512i integers = _mm512_cvtps_epi64(masses);
  return _mm512_maskz_mov_epi64(_mm512_cmpge_epu64_mask(integers, least), integers);
}

HAYATE_AVX512 uint64_t SumMass512(const float* logits, int64_t count, float highest,
                                  float inv_temperature, uint64_t least) {
  const __m512 h = _mm512_set1_ps(highest), t = _mm512_set1_ps(inv_temperature);
  const __m512 round = _mm512_set1_ps(kRoundToInteger);
  const __m512i at_least = _mm512_set1_epi64(static_cast<int64_t>(least));
  __m512i sum = _mm512_setzero_si512();
  for (int64_t i = 0; i < count; i += 16) {
    const __mmask16 lanes = FirstLanes(count - i < 16 ? count - i : 16);
    const __m512 x = _mm512_mul_ps(_mm512_sub_ps(_mm512_maskz_loadu_ps(lanes, logits + i), h), t);
    const __m512 exponent = _mm512_mul_ps(x, _mm512_set1_ps(kLog2e));
    const __mmask16 counts =
        _mm512_mask_cmp_ps_mask(lanes, exponent, _mm512_set1_ps(kMinExponent), _CMP_GT_OQ);
    if (counts == 0) continue;
    const __m512 whole = _mm512_sub_ps(_mm512_add_ps(exponent, round), round);
    const __m512 fraction = _mm512_sub_ps(exponent, whole);
    __m512 power = _mm512_set1_ps(kPow2[0]);
    for (int j = 1; j < 7; ++j) {
      power = _mm512_add_ps(_mm512_mul_ps(power, fraction), _mm512_set1_ps(kPow2[j]));
    }
    const __m512 masses = _mm512_maskz_scalef_ps(
        counts, power, _mm512_add_ps(whole, _mm512_set1_ps(static_cast<float>(kMassBits))));
    sum = _mm512_add_epi64(sum, MassesAtLeast(_mm512_castps512_ps256(masses), at_least));
    sum = _mm512_add_epi64(sum, MassesAtLeast(_mm512_extractf32x8_ps(masses, 1), at_least));
  }
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(sum));
}

HAYATE_AVX512 int64_t Collect512(const float* logits, int64_t count, float threshold,
                                 uint64_t* keys, int64_t capacity, int64_t* next) {
  const __m512 v = _mm512_set1_ps(threshold);
  int64_t size = 0, i = *next;
  for (; i < count && size + kCollectSlack <= capacity; i += 16) {
    const __mmask16 lanes = FirstLanes(count - i < 16 ? count - i : 16);
    unsigned mask =
        _mm512_mask_cmp_ps_mask(lanes, _mm512_maskz_loadu_ps(lanes, logits + i), v, _CMP_GE_OQ);
    for (; mask != 0; mask &= mask - 1) {
      const int64_t id = i + __builtin_ctz(mask);
      keys[size++] = KeyOf(logits[id], id);
    }
  }
  *next = i < count ? i : count;
  return size;
}

HAYATE_AVX2 Highest Highest256(const float* logits, int64_t count) {
  __m256 a = _mm256_set1_ps(kMinusInfinity), nan = _mm256_setzero_ps();
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 x = _mm256_loadu_ps(logits + i);
    nan = _mm256_or_ps(nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    a = _mm256_max_ps(a, x);
  }
  float lanes[8];
  _mm256_storeu_ps(lanes, a);
  const Highest most = HighestPlain(lanes, 8), rest = HighestPlain(logits + i, count - i);
  return {most.logit > rest.logit ? most.logit : rest.logit,
          _mm256_movemask_ps(nan) != 0 || rest.has_nan};
}

HAYATE_AVX2 int64_t Find256(const float* logits, int64_t count, float value) {
  const __m256 v = _mm256_set1_ps(value);
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const int equal = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(logits + i), v, _CMP_EQ_OQ));
    if (equal != 0) return i + __builtin_ctz(static_cast<unsigned>(equal));
  }
  return i + FindPlain(logits + i, count - i, value);
}

HAYATE_AVX2 int64_t CountAbove256(const float* logits, int64_t count, float value) {
  const __m256 v = _mm256_set1_ps(value);
  int64_t above = 0, i = 0;
  for (; i + 8 <= count; i += 8) {
    above += __builtin_popcount(static_cast<unsigned>(
        _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(logits + i), v, _CMP_GT_OQ))));
  }
  return above + CountAbovePlain(logits + i, count - i, value);
}

// Four masses as doubles: adding 2⁵² leaves the integer in the low bits, as in Mass.
HAYATE_AVX2 __m256i ToIntegers(__m128 masses) {
  const __m256d shift = _mm256_set1_pd(0x1p52);
  return _mm256_sub_epi64(_mm256_castpd_si256(_mm256_add_pd(_mm256_cvtps_pd(masses), shift)),
                          _mm256_castpd_si256(shift));
}

HAYATE_AVX2 uint64_t SumMass256(const float* logits, int64_t count, float highest,
                                float inv_temperature, uint64_t least) {
  const __m256 h = _mm256_set1_ps(highest), t = _mm256_set1_ps(inv_temperature);
  const __m256 round = _mm256_set1_ps(kRoundToInteger);
  const __m256i below = _mm256_set1_epi64x(static_cast<int64_t>(least) - 1);
  __m256i sum = _mm256_setzero_si256();
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m256 x = _mm256_mul_ps(_mm256_sub_ps(_mm256_loadu_ps(logits + i), h), t);
    const __m256 exponent = _mm256_mul_ps(x, _mm256_set1_ps(kLog2e));
    const __m256 counts = _mm256_cmp_ps(exponent, _mm256_set1_ps(kMinExponent), _CMP_GT_OQ);
    if (_mm256_movemask_ps(counts) == 0) continue;
    const __m256 whole = _mm256_sub_ps(_mm256_add_ps(exponent, round), round);
    const __m256 fraction = _mm256_sub_ps(exponent, whole);
    __m256 power = _mm256_set1_ps(kPow2[0]);
    for (int j = 1; j < 7; ++j) {
      power = _mm256_add_ps(_mm256_mul_ps(power, fraction), _mm256_set1_ps(kPow2[j]));
    }
    const __m256i bits = _mm256_slli_epi32(
        _mm256_add_epi32(_mm256_cvtps_epi32(whole), _mm256_set1_epi32(kMassBits + 127)), 23);
    const __m256 masses = _mm256_and_ps(counts, _mm256_mul_ps(power, _mm256_castsi256_ps(bits)));
    const __m256i low = ToIntegers(_mm256_castps256_ps128(masses));
    const __m256i high = ToIntegers(_mm256_extractf128_ps(masses, 1));
    sum = _mm256_add_epi64(sum, _mm256_and_si256(low, _mm256_cmpgt_epi64(low, below)));
    sum = _mm256_add_epi64(sum, _mm256_and_si256(high, _mm256_cmpgt_epi64(high, below)));
  }
  uint64_t lanes[4];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), sum);
  return lanes[0] + lanes[1] + lanes[2] + lanes[3] +
         SumMassPlain(logits + i, count - i, highest, inv_temperature, least);
}

HAYATE_AVX2 int64_t Collect256(const float* logits, int64_t count, float threshold, uint64_t* keys,
                               int64_t capacity, int64_t* next) {
  const __m256 v = _mm256_set1_ps(threshold);
  int64_t size = 0, i = *next;
  for (; i + 8 <= count && size + kCollectSlack <= capacity; i += 8) {
    unsigned mask = static_cast<unsigned>(
        _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(logits + i), v, _CMP_GE_OQ)));
    for (; mask != 0; mask &= mask - 1) {
      const int64_t id = i + __builtin_ctz(mask);
      keys[size++] = KeyOf(logits[id], id);
    }
  }
  *next = i;
  if (i + 8 <= count) return size;
  return size + CollectPlain(logits, count, threshold, keys + size, capacity - size, next);
}

constexpr ScanKernels kKernels[] = {
    {"avx512", RunsOnAvx512, Highest512, Find512, CountAbove512, SumMass512, Collect512},
    {"avx2", RunsOnAvx2, Highest256, Find256, CountAbove256, SumMass256, Collect256},
    {"plain", RunsAnywhere, HighestPlain, FindPlain, CountAbovePlain, SumMassPlain, CollectPlain},
};
#else
constexpr ScanKernels kKernels[] = {
    {"plain", RunsAnywhere, HighestPlain, FindPlain, CountAbovePlain, SumMassPlain, CollectPlain}};
#endif

}  // namespace

std::span<const ScanKernels> AllScanKernels() { return kKernels; }

}  // namespace hayate::ops::sampling
