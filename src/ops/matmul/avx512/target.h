#pragma once
// What the functions of this folder are compiled for. Only marked functions may use these
// instructions: every inline function of another header stays at the baseline.

#include "ops/detail/x86.h"

#define HAYATE_AVX512_VNNI \
  __attribute__((          \
      target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx512bf16,avx2,fma,f16c,bmi2")))
#define HAYATE_AVX512_VNNI_INLINE HAYATE_AVX512_VNNI __attribute__((always_inline)) inline
