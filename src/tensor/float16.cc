#include "tensor/float16.h"

#include <cmath>
#include <limits>

namespace hayate {

float F16ToFloat(uint16_t bits) {
  const uint32_t sign = uint32_t{bits} >> 15 << 31;
  const uint32_t exponent = bits >> 10 & 0x1F;
  const uint32_t mantissa = bits & 0x3FF;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7F800000u | mantissa << 13);
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

uint16_t FloatToF16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);
  if (magnitude >= 0x477FF000u) return static_cast<uint16_t>(sign | 0x7C00u);  // ≥ 65520
  if (magnitude < 0x38800000u) {  // subnormal in half: the addition rounds to nearest even
    const float scaled = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(scaled) - 0x3F000000u));
  }
  const uint32_t rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | (rounded - 0x38000000u) >> 13);
}

float F8E4M3ToFloat(uint8_t bits) {
  const int exponent = bits >> 3 & 0xF;
  const int mantissa = bits & 7;
  float magnitude;
  if (exponent == 15 && mantissa == 7) {
    magnitude = std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  } else {
    magnitude = std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  }
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

uint8_t FloatToF8E4M3(float value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7F);
  if (magnitude >= 448.0f) return static_cast<uint8_t>(sign | 0x7E);
  if (magnitude < 0x1p-6f) {  // subnormal: multiples of 2^-9
    return static_cast<uint8_t>(sign | static_cast<int>(std::nearbyint(magnitude * 0x1p9f)));
  }
  const uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = bits + 0x7FFFFu + (bits >> 20 & 1);
  const uint32_t code = (rounded >> 20) - (120u << 3);
  return static_cast<uint8_t>(sign | (code > 0x7E ? 0x7E : code));
}

float F8E5M2ToFloat(uint8_t bits) { return F16ToFloat(static_cast<uint16_t>(bits << 8)); }

}  // namespace hayate
