#pragma once
// One element of a row as a file stores it, in fp32: for look-ups, not for streams. The bit layouts
// are the GGUF specification's; no product is fused, so the values equal the host's.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

#include "tensor/dtype.h"

namespace hayate::ops::sm90 {

struct CodeScale {
  int code;
  float scale;
  float min;  // a weight is scale · code + min
};

__device__ __forceinline__ float HalfAt(const uint8_t* bytes) {
  // Blocks of odd size put halves on odd addresses.
  const uint16_t bits = static_cast<uint16_t>(bytes[0] | bytes[1] << 8);
  return __half2float(__ushort_as_half(bits));
}

// In the 32-element types the low nibbles are elements 0 … 15.
__device__ __forceinline__ int NibbleOf32(const uint8_t* codes, int i) {
  return codes[i % 16] >> (i / 16 * 4) & 0xF;
}
__device__ __forceinline__ int FifthBit(const uint8_t* bits, int i) {
  return (bits[i / 8] >> (i % 8) & 1) << 4;
}
// In the 256-element types 32 neighbours share a bit position: of pairs of bits in a half, of
// nibbles in a quarter.
__device__ __forceinline__ int TwoBitsOf256(const uint8_t* codes, int i) {
  return codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}
__device__ __forceinline__ int NibbleOf256(const uint8_t* codes, int i) {
  return codes[i / 64 * 32 + i % 32] >> (i % 64 / 32 * 4) & 0xF;
}

// Q4_K and Q5_K: pair `group` of eight 6-bit scales and mins in 12 bytes.
__device__ __forceinline__ CodeScale SuperMin(const uint8_t* block, int group, int code) {
  const uint8_t* packed = block + 4;
  int scale, min;
  if (group < 4) {
    scale = packed[group] & 63;
    min = packed[group + 4] & 63;
  } else {
    scale = (packed[group + 4] & 0xF) | packed[group - 4] >> 6 << 4;
    min = packed[group + 4] >> 4 | packed[group] >> 6 << 4;
  }
  return {code, __fmul_rn(HalfAt(block), static_cast<float>(scale)),
          -__fmul_rn(HalfAt(block + 2), static_cast<float>(min))};
}

__device__ inline int Iq4NlValue(int code) {
  constexpr int kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};
  int value = 0;
#pragma unroll
  for (int i = 0; i < 16; ++i) value = code == i ? kValues[i] : value;
  return value;
}
// Twice an E2M1 number.
__device__ __forceinline__ int TwiceE2M1(int code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const int magnitude = exponent == 0 ? mantissa : (2 + mantissa) << (exponent - 1);
  return (code & 8) != 0 ? -magnitude : magnitude;
}

// Element `i` of a block.
template <DType kType>
__device__ __forceinline__ CodeScale BlockElement(const uint8_t* block, int i) {
  if constexpr (kType == DType::kQ4_0) {
    return {NibbleOf32(block + 2, i) - 8, HalfAt(block), 0.0f};
  } else if constexpr (kType == DType::kQ4_1) {
    return {NibbleOf32(block + 4, i), HalfAt(block), HalfAt(block + 2)};
  } else if constexpr (kType == DType::kQ5_0) {
    return {(NibbleOf32(block + 6, i) | FifthBit(block + 2, i)) - 16, HalfAt(block), 0.0f};
  } else if constexpr (kType == DType::kQ5_1) {
    return {NibbleOf32(block + 8, i) | FifthBit(block + 4, i), HalfAt(block), HalfAt(block + 2)};
  } else if constexpr (kType == DType::kQ8_0) {
    return {static_cast<int8_t>(block[2 + i]), HalfAt(block), 0.0f};
  } else if constexpr (kType == DType::kIQ4_NL) {
    return {Iq4NlValue(NibbleOf32(block + 2, i)), HalfAt(block), 0.0f};
  } else if constexpr (kType == DType::kMXFP4) {
    // 2^(e − 127), halved because the codes are doubled.
    const float scale = block[0] == 0 ? 0x1p-127f : __uint_as_float(uint32_t{block[0]} << 23);
    return {TwiceE2M1(NibbleOf32(block + 1, i)), scale * 0.5f, 0.0f};
  } else if constexpr (kType == DType::kQ2_K) {
    const int packed = block[i / 16];
    return {TwoBitsOf256(block + 16, i),
            __fmul_rn(HalfAt(block + 80), static_cast<float>(packed & 0xF)),
            -__fmul_rn(HalfAt(block + 82), static_cast<float>(packed >> 4))};
  } else if constexpr (kType == DType::kQ3_K) {
    const uint8_t* scales = block + 96;
    const int group = i / 16;
    const int nibble = group < 8 ? scales[group] & 0xF : scales[group - 8] >> 4;
    const int scale = (nibble | (scales[8 + group % 4] >> (group / 4 * 2) & 3) << 4) - 32;
    const int third_bit = block[i % 32] >> (i / 32) & 1;
    return {TwoBitsOf256(block + 32, i) - (third_bit != 0 ? 0 : 4),
            __fmul_rn(HalfAt(block + 108), static_cast<float>(scale)), 0.0f};
  } else if constexpr (kType == DType::kQ4_K) {
    return SuperMin(block, i / 32, NibbleOf256(block + 16, i));
  } else if constexpr (kType == DType::kQ5_K) {
    const int fifth_bit = block[16 + i % 32] >> (i / 32) & 1;
    return SuperMin(block, i / 32, NibbleOf256(block + 48, i) | fifth_bit << 4);
  } else {
    static_assert(kType == DType::kQ6_K);
    const int nibble = block[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 0xF;
    const int scale = static_cast<int8_t>(block[192 + i / 16]);
    return {(nibble | TwoBitsOf256(block + 128, i) << 4) - 32,
            __fmul_rn(HalfAt(block + 208), static_cast<float>(scale)), 0.0f};
  }
}

// Element `i` of a row.
template <DType kType>
__device__ __forceinline__ float StoredElement(const uint8_t* row, int64_t i) {
  if constexpr (kType == DType::kF32) {
    return reinterpret_cast<const float*>(row)[i];
  } else if constexpr (kType == DType::kF16) {
    return __half2float(reinterpret_cast<const __half*>(row)[i]);
  } else if constexpr (kType == DType::kBF16) {
    return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(row)[i]);
  } else if constexpr (kType == DType::kF8E4M3 || kType == DType::kF8E5M2) {
    constexpr auto kFormat = kType == DType::kF8E4M3 ? __NV_E4M3 : __NV_E5M2;
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(row[i], kFormat)));
  } else {
    constexpr int kElements = kType >= DType::kQ2_K ? 256 : 32;
    constexpr int kBytes = kType == DType::kQ4_0 || kType == DType::kIQ4_NL ? 18
                           : kType == DType::kQ4_1                          ? 20
                           : kType == DType::kQ5_0                          ? 22
                           : kType == DType::kQ5_1                          ? 24
                           : kType == DType::kQ8_0                          ? 34
                           : kType == DType::kMXFP4                         ? 17
                           : kType == DType::kQ2_K                          ? 84
                           : kType == DType::kQ3_K                          ? 110
                           : kType == DType::kQ4_K                          ? 144
                           : kType == DType::kQ5_K                          ? 176
                                                                            : 210;
    const CodeScale element =
        BlockElement<kType>(row + i / kElements * kBytes, static_cast<int>(i % kElements));
    const float product = __fmul_rn(element.scale, static_cast<float>(element.code));
    return element.min == 0.0f ? product : __fadd_rn(product, element.min);
  }
}

}  // namespace hayate::ops::sm90
