#pragma once
// The block quantisers of the DeepSeek V4 family, as definitions on host floats.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "tensor/float16.h"

namespace hayate::ops::latent {

inline constexpr float kMaxFp8 = 448.0f;
inline constexpr float kMaxFp4 = 6.0f;

inline float RoundToBf16(float x) { return Bf16ToFloat(FloatToBf16(x)); }

// The E8M0 byte of 2^ceil(log2 v), v a positive normal number: from its bits.
inline uint8_t CeilPowerOfTwo(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  return static_cast<uint8_t>((bits >> 23) + ((bits & 0x7FFFFFu) != 0 ? 1 : 0));
}

inline float MaxMagnitude(const float* x, int n) {
  float most = 0.0f;
  for (int i = 0; i < n; ++i) most = std::max(most, std::fabs(x[i]));
  return most;
}

// The scale byte of a block for E4M3 and for E2M1 codes.
inline uint8_t Fp8Scale(const float* x, int n) {
  return CeilPowerOfTwo(std::max(MaxMagnitude(x, n), 1e-4f) / kMaxFp8);
}
inline uint8_t Fp4Scale(const float* x, int n) {
  return CeilPowerOfTwo(std::max(MaxMagnitude(x, n), 6.0f * 0x1p-126f) / kMaxFp4);
}
// The same for E4M3 scales.
inline uint8_t Fp4ScaleE4M3(const float* x, int n) {
  return FloatToF8E4M3(std::max(MaxMagnitude(x, n), 6.0f * 0x1p-9f) / kMaxFp4);
}

// Round to nearest, ties to the even code, saturating at ±6.
inline uint8_t EncodeE2M1(float x) {
  const float a = std::fabs(x);
  // Upper ends of the codes 0 … 6; a tie goes to the even neighbour.
  uint8_t code = 7;
  if (a <= 0.25f) {
    code = 0;
  } else if (a < 0.75f) {
    code = 1;
  } else if (a <= 1.25f) {
    code = 2;
  } else if (a < 1.75f) {
    code = 3;
  } else if (a <= 2.5f) {
    code = 4;
  } else if (a < 3.5f) {
    code = 5;
  } else if (a <= 5.0f) {
    code = 6;
  }
  return static_cast<uint8_t>(code | (std::signbit(x) ? 8 : 0));
}

// x [n] through E2M1 with a power-of-two scale per 32: the index queries' quantisation.
inline void SimulateFp4(float* x, int64_t n) {
  for (int64_t begin = 0; begin < n; begin += 32) {
    const int count = static_cast<int>(std::min<int64_t>(32, n - begin));
    for (int i = 0; i < count; ++i) x[begin + i] = RoundToBf16(x[begin + i]);
    const float scale = F8E8M0ToFloat(Fp4Scale(x + begin, count));
    for (int i = 0; i < count; ++i) {
      x[begin + i] = kF4E2M1Values[EncodeE2M1(x[begin + i] / scale)] * scale;
    }
  }
}

}  // namespace hayate::ops::latent
