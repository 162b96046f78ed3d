#pragma once
// Warpgroup matrix instructions: D[64, N] (+)= A[64, K] · B[N, K]ᵀ, fp32 accumulators in registers,
// issued by the four warps of a warpgroup together. K is 16 for bf16 and 32 for fp8.
//
// Fragment of D (and, with two bf16 in place of each pair, of A in registers): thread t of the
// group, warp w = t / 32, lane l = t % 32, holds for j in [0, N/8)
//   d[4j], d[4j+1]     row 16w + l/4,      columns 8j + 2(l%4), + 1
//   d[4j+2], d[4j+3]   row 16w + l/4 + 8,  the same columns
//
// Order: WgmmaFence, products, WgmmaCommit, WgmmaWait<pending>. Between the fence and the wait the
// accumulators, and A in registers, must not be touched.

#include <cstdint>

#include "ops/detail/sm90/mbarrier.cuh"

namespace hayate::ops::sm90 {

__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving uses of an accumulator across the asynchronous products.
template <int kCount>
__device__ __forceinline__ void PinRegisters(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// Descriptor of an operand in shared memory with the 128-byte swizzle, 1024-byte aligned.
//
// K-major (rows of 128 bytes along K, as a bulk copy with a box of 128 bytes × rows leaves them):
// `stride_bytes` is 1024, the distance of groups of 8 rows; `leading_bytes` is unused. A further
// step of 32 bytes along K adds 2 to the descriptor.
//
// MN-major (bf16 B, kTransposed: rows of 64 elements along N, one row per k): `stride_bytes` is the
// distance of groups of 8 k, `leading_bytes` that of groups of 64 n.
__device__ __forceinline__ uint64_t SharedOperand(const void* shared, uint32_t stride_bytes = 1024,
                                                  uint32_t leading_bytes = 16) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  return kSwizzle128 | (uint64_t{stride_bytes >> 4} << 32) | (uint64_t{leading_bytes >> 4} << 16) |
         ((SharedAddress(shared) & 0x3FFFF) >> 4);
}

// B is [N, K] with K contiguous, or [K, N] with N contiguous.
enum class BLayout : int { kKMajor = 0, kMnMajor = 1 };

// `accumulate` 0 overwrites d.
template <int kN>
struct Wgmma;  // kN of the list below

// clang-format off
#define HAYATE_D8 "%0, %1, %2, %3"
#define HAYATE_D16 HAYATE_D8 ", %4, %5, %6, %7"
#define HAYATE_D24 HAYATE_D16 ", %8, %9, %10, %11"
#define HAYATE_D32 HAYATE_D24 ", %12, %13, %14, %15"
#define HAYATE_D40 HAYATE_D32 ", %16, %17, %18, %19"
#define HAYATE_D48 HAYATE_D40 ", %20, %21, %22, %23"
#define HAYATE_D56 HAYATE_D48 ", %24, %25, %26, %27"
#define HAYATE_D64 HAYATE_D56 ", %28, %29, %30, %31"
#define HAYATE_D80 HAYATE_D64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define HAYATE_D96 HAYATE_D80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define HAYATE_D128 HAYATE_D96 \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define HAYATE_D160 HAYATE_D128 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define HAYATE_D192 HAYATE_D160 \
    ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define HAYATE_D224 HAYATE_D192 \
    ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define HAYATE_D256 HAYATE_D224 \
    ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"


#define HAYATE_O4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define HAYATE_O8(i) HAYATE_O4(i), HAYATE_O4(i + 4)
#define HAYATE_O16(i) HAYATE_O8(i), HAYATE_O8(i + 8)
#define HAYATE_O32(i) HAYATE_O16(i), HAYATE_O16(i + 16)
#define HAYATE_O64(i) HAYATE_O32(i), HAYATE_O32(i + 32)

// N, operands of D, its registers, and the numbers of the operands that follow them.
#define HAYATE_WGMMA(N, OUTPUTS, O0, O1, O2, O3, O4, O5, O6)                                       \
  template <>                                                                                      \
  struct Wgmma<N> {                                                                                \
    template <BLayout kB = BLayout::kKMajor>                                                       \
    static __device__ __forceinline__ void Bf16(float (&d)[N / 2], uint64_t a, uint64_t b,         \
                                                int accumulate) {                                  \
      asm volatile(                                                                                \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %" #O2 ", 0;\n"                                        \
          "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" HAYATE_D##N                 \
          "}, %" #O0 ", %" #O1 ", p, 1, 1, 0, %" #O3 ";\n}"                                        \
          : OUTPUTS                                                                                \
          : "l"(a), "l"(b), "r"(accumulate), "n"(static_cast<int>(kB)));                           \
    }                                                                                              \
    template <BLayout kB = BLayout::kKMajor>                                                       \
    static __device__ __forceinline__ void Bf16(float (&d)[N / 2], const uint32_t (&a)[4],         \
                                                uint64_t b, int accumulate) {                      \
      asm volatile(                                                                                \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %" #O5 ", 0;\n"                                        \
          "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {" HAYATE_D##N                 \
          "}, {%" #O0 ", %" #O1 ", %" #O2 ", %" #O3 "}, %" #O4 ", p, 1, 1, %" #O6 ";\n}"           \
          : OUTPUTS                                                                                \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),                   \
            "n"(static_cast<int>(kB)));                                                            \
    }                                                                                              \
    static __device__ __forceinline__ void E4M3(float (&d)[N / 2], uint64_t a, uint64_t b,         \
                                                int accumulate) {                                  \
      asm volatile(                                                                                \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %" #O2 ", 0;\n"                                        \
          "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" HAYATE_D##N                 \
          "}, %" #O0 ", %" #O1 ", p, 1, 1;\n}"                                                     \
          : OUTPUTS                                                                                \
          : "l"(a), "l"(b), "r"(accumulate));                                                      \
    }                                                                                              \
    static __device__ __forceinline__ void E4M3(float (&d)[N / 2], const uint32_t (&a)[4],         \
                                                uint64_t b, int accumulate) {                      \
      asm volatile(                                                                                \
          "{\n.reg .pred p;\nsetp.ne.b32 p, %" #O5 ", 0;\n"                                        \
          "wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {" HAYATE_D##N                 \
          "}, {%" #O0 ", %" #O1 ", %" #O2 ", %" #O3 "}, %" #O4 ", p, 1, 1;\n}"                     \
          : OUTPUTS                                                                                \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));                  \
    }                                                                                              \
  };
#define HAYATE_OUTPUTS(...) __VA_ARGS__
HAYATE_WGMMA(8, HAYATE_OUTPUTS(HAYATE_O4(0)), 4, 5, 6, 7, 8, 9, 10)
HAYATE_WGMMA(16, HAYATE_OUTPUTS(HAYATE_O8(0)), 8, 9, 10, 11, 12, 13, 14)
HAYATE_WGMMA(24, HAYATE_OUTPUTS(HAYATE_O8(0), HAYATE_O4(8)), 12, 13, 14, 15, 16, 17, 18)
HAYATE_WGMMA(32, HAYATE_OUTPUTS(HAYATE_O16(0)), 16, 17, 18, 19, 20, 21, 22)
HAYATE_WGMMA(40, HAYATE_OUTPUTS(HAYATE_O16(0), HAYATE_O4(16)), 20, 21, 22, 23, 24, 25, 26)
HAYATE_WGMMA(48, HAYATE_OUTPUTS(HAYATE_O16(0), HAYATE_O8(16)), 24, 25, 26, 27, 28, 29, 30)
HAYATE_WGMMA(56, HAYATE_OUTPUTS(HAYATE_O16(0), HAYATE_O8(16), HAYATE_O4(24)), 28, 29, 30, 31, 32, 33, 34)
HAYATE_WGMMA(64, HAYATE_OUTPUTS(HAYATE_O32(0)), 32, 33, 34, 35, 36, 37, 38)
HAYATE_WGMMA(80, HAYATE_OUTPUTS(HAYATE_O32(0), HAYATE_O8(32)), 40, 41, 42, 43, 44, 45, 46)
HAYATE_WGMMA(96, HAYATE_OUTPUTS(HAYATE_O32(0), HAYATE_O16(32)), 48, 49, 50, 51, 52, 53, 54)
HAYATE_WGMMA(128, HAYATE_OUTPUTS(HAYATE_O64(0)), 64, 65, 66, 67, 68, 69, 70)
HAYATE_WGMMA(160, HAYATE_OUTPUTS(HAYATE_O64(0), HAYATE_O16(64)), 80, 81, 82, 83, 84, 85, 86)
HAYATE_WGMMA(192, HAYATE_OUTPUTS(HAYATE_O64(0), HAYATE_O32(64)), 96, 97, 98, 99, 100, 101, 102)
HAYATE_WGMMA(224, HAYATE_OUTPUTS(HAYATE_O64(0), HAYATE_O32(64), HAYATE_O16(96)), 112, 113, 114, 115, 116, 117, 118)
HAYATE_WGMMA(256, HAYATE_OUTPUTS(HAYATE_O64(0), HAYATE_O64(64)), 128, 129, 130, 131, 132, 133, 134)

#undef HAYATE_D8
#undef HAYATE_D16
#undef HAYATE_D24
#undef HAYATE_D32
#undef HAYATE_D40
#undef HAYATE_D48
#undef HAYATE_D56
#undef HAYATE_D64
#undef HAYATE_D80
#undef HAYATE_D96
#undef HAYATE_D128
#undef HAYATE_D160
#undef HAYATE_D192
#undef HAYATE_D256
#undef HAYATE_O4
#undef HAYATE_O8
#undef HAYATE_O16
#undef HAYATE_O32
#undef HAYATE_O64
#undef HAYATE_WGMMA
#undef HAYATE_OUTPUTS
// clang-format on

}  // namespace hayate::ops::sm90
