#pragma once
// Vector intrinsics for functions that are compiled for more than the baseline: mark them
// HAYATE_AVX2 or HAYATE_AVX512 and call them only where DetectCpuFeatures() says so.

#include <cstdint>

#if defined(__x86_64__)

// g++ 12 warns about the deliberately undefined registers inside its own header once it is inlined.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#else
#include <immintrin.h>
#endif

#define HAYATE_AVX2 __attribute__((target("avx2,fma,f16c")))
#define HAYATE_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c,bmi2")))

namespace hayate::ops {

// Lanes [0, count) of a vector of 16; count in [0, 16].
HAYATE_AVX512 inline __mmask16 FirstLanes(int64_t count) {
  return static_cast<__mmask16>(_bzhi_u32(0xFFFFu, static_cast<unsigned>(count)));
}

}  // namespace hayate::ops

#endif
