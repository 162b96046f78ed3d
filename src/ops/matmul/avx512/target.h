#pragma once
// Functions of this folder are compiled for AVX-512 F, BW, DQ and VL. The instructions beyond are
// these wrappers around one each, so that one template serves CPUs with and without them; call them
// only where the CPU has them.

#include "ops/detail/x86.h"

#define HAYATE_AVX512_INLINE HAYATE_AVX512 __attribute__((always_inline)) inline

#if defined(__x86_64__)

namespace hayate::ops::matmul::avx512 {

// AVX-512 VNNI. sum + Σ of the 4 unsigned codes of each lane times the 4 signed bytes at `four`.
HAYATE_AVX512_INLINE __m512i DotVnni(__m512i sum, __m512i codes, const int8_t* four) {
  typedef int32_t __attribute__((may_alias, aligned(1))) Four;
  asm("vpdpbusd %2%{1to16%}, %1, %0"
      : "+v"(sum)
      : "v"(codes), "m"(*reinterpret_cast<const Four*>(four)));
  return sum;
}

// AVX-512 BF16. acc + the sum of both products of bf16 pairs, per lane.
HAYATE_AVX512_INLINE __m512 DotBf16(__m512 acc, __m512 a, __m512 b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
  return acc;
}

// AVX-512 BF16. Rounds to nearest even.
HAYATE_AVX512_INLINE __m256i RoundToBf16(__m512 values) {
  __m256i words;
  asm("vcvtneps2bf16 %1, %0" : "=v"(words) : "v"(values));
  return words;
}

}  // namespace hayate::ops::matmul::avx512

#endif  // __x86_64__
