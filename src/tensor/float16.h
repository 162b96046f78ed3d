#pragma once
// Conversions of 16-bit and 8-bit floats on the host, by bits. For references, loaders and tests;
// fast paths use vector instructions.

#include <bit>
#include <cstdint>

namespace hayate {

inline float Bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Round to nearest even; NaN stays NaN.
inline uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1)) >> 16);
}

float F16ToFloat(uint16_t bits);
uint16_t FloatToF16(float value);    // round to nearest even, overflow to infinity
float F8E4M3ToFloat(uint8_t bits);   // OCP E4M3FN: no infinity, NaN = 0x7F
uint8_t FloatToF8E4M3(float value);  // round to nearest even, saturates at ±448, NaN stays NaN
float F8E5M2ToFloat(uint8_t bits);
// E2M1: bit 3 the sign, ±{0, 0.5, 1, 1.5, 2, 3, 4, 6}.
inline constexpr float kF4E2M1Values[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                            -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
inline float F8E8M0ToFloat(uint8_t bits) {  // 2^(bits − 127); 0xFF is NaN
  if (bits == 0xFF) return std::bit_cast<float>(0x7FC00000u);
  return bits == 0 ? std::bit_cast<float>(0x00400000u) : std::bit_cast<float>(uint32_t{bits} << 23);
}

}  // namespace hayate
