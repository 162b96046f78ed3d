#pragma once
// Warp matrix instructions and their operands, for the decode kernel.
//
// m16n8k16: D[16, 8] += A[16, 16] · B[16, 8], fp32 accumulators. Lane l, with r = l / 4, j = l % 4:
//   a[0]  row r,      k 2j, 2j + 1        b[0]  column r, k 2j, 2j + 1
//   a[1]  row r + 8,  k 2j, 2j + 1        b[1]  column r, k 2j + 8, 2j + 9
//   a[2]  row r,      k 2j + 8, 2j + 9    d[0], d[1]  row r,      columns 2j, 2j + 1
//   a[3]  row r + 8,  k 2j + 8, 2j + 9    d[2], d[3]  row r + 8,  columns 2j, 2j + 1

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace hayate::ops::sm90 {

__device__ __forceinline__ void Mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                    __nv_bfloat16) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void Mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1,
                                    __half) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 × 8 matrices of 16-bit numbers; lane l has the shared address of row l % 8 of matrix
// l / 8, and gets of every matrix row l / 4, columns 2(l % 4) and + 1.
__device__ __forceinline__ void LoadMatrices(uint32_t (&out)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
               : "r"(row)
               : "memory");
}

// Two floats as a pair of 16-bit numbers, `low` first.
__device__ __forceinline__ uint32_t Packed(float low, float high, __nv_bfloat16) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}
__device__ __forceinline__ uint32_t Packed(float low, float high, __half) {
  const __half2 pair = __floats2half2_rn(low, high);
  return reinterpret_cast<const uint32_t&>(pair);
}

// Two e4m3 in the low 16 bits as a pair of fp16.
__device__ __forceinline__ uint32_t HalvesOfE4M3(uint32_t pair) {
  uint32_t halves;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(pair)));
  return halves;
}

// The transpose of an 8 × 8 matrix of 16-bit numbers of which lane l holds row l / 4, columns
// 2(l % 4) and + 1.
__device__ __forceinline__ uint32_t Transposed(uint32_t pair) {
  uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(pair));
  return out;
}

__device__ __forceinline__ float Exp2(float x) {
  float out;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(x));
  return out;
}

// 16 bytes that are read once and written by no one meanwhile: past the first-level cache.
__device__ __forceinline__ uint4 LoadStreamed(const void* from) {
  uint4 out;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(out.x), "=r"(out.y), "=r"(out.z), "=r"(out.w)
               : "l"(from));
  return out;
}

}  // namespace hayate::ops::sm90
