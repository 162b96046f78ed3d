#pragma once
// The integer arithmetic of sampling, for host and device. The floating-point steps are single IEEE
// operations in a fixed order, without fused multiply-adds, so scalar code, vector code and GPUs
// get the same integers.

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/host_device.h"
#include "base/rng.h"

namespace hayate::ops::sampling {

// A mass is at most 2⁴⁰: 2²³ tokens add up without overflow, and what rounds to 0 would be drawn
// less than once in 10¹² draws.
inline constexpr int kMassBits = 40;
inline constexpr uint64_t kFullMass = uint64_t{1} << kMassBits;

inline constexpr float kLog2e = 1.44269504f;
// Exponents below this round to mass 0.
inline constexpr float kMinExponent = -41.0f;
// Adding and subtracting it rounds a small float to the nearest integer.
inline constexpr float kRoundToInteger = 12582912.0f;
// 2^f on [−0.5, 0.5], highest power first; the constant term is 1, so that the highest logit has
// exactly the full mass.
inline constexpr std::array<float, 7> kPow2 = {1.54035304e-4f,
                                               1.33335581e-3f,
                                               9.61812911e-3f,
                                               5.55041087e-2f,
                                               2.40226507e-1f,
                                               6.93147181e-1f,
                                               1.0f};

// Products and sums that no compiler fuses; the host is compiled with -ffp-contract=off.
HAYATE_HOST_DEVICE inline float Times(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
HAYATE_HOST_DEVICE inline float Plus(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

// x = (logit − highest) / temperature ≤ 0, or −∞.
HAYATE_HOST_DEVICE inline uint64_t Mass(float x) {
  const float exponent = Times(x, kLog2e);
  if (!(exponent > kMinExponent)) return 0;
  const float whole = Plus(Plus(exponent, kRoundToInteger), -kRoundToInteger);
  const float fraction = Plus(exponent, -whole);
  constexpr auto kPower = kPow2;
  float power = kPower[0];
  for (int i = 1; i < 7; ++i) power = Plus(Times(power, fraction), kPower[i]);
  const int32_t bits = (static_cast<int32_t>(whole) + kMassBits + 127) << 23;
  // Adding 2⁵² rounds to an integer and leaves it in the low bits.
  const double mass = double{Times(power, std::bit_cast<float>(bits))} + 0x1p52;
  return std::bit_cast<uint64_t>(mass) - std::bit_cast<uint64_t>(0x1p52);
}

// Masses below are dropped by min-p.
HAYATE_HOST_DEVICE inline uint64_t LeastMass(float min_p) {
  return static_cast<uint64_t>(std::ceil(double{min_p} * static_cast<double>(kFullMass)));
}
// What the shortest prefix that top-p keeps holds at least.
HAYATE_HOST_DEVICE inline uint64_t TopPTarget(float top_p, uint64_t total) {
  return static_cast<uint64_t>(std::ceil(double{top_p} * static_cast<double>(total)));
}
// ⌊u · total / 2⁶⁴⌋ for the 64 bits u of (seed, position).
HAYATE_HOST_DEVICE inline uint64_t RandomBelow(uint64_t seed, uint64_t position, uint64_t total) {
  const auto random = Philox4x32(seed, position, 0);
  const uint64_t u = uint64_t{random[0]} << 32 | random[1];
  return static_cast<uint64_t>(static_cast<unsigned __int128>(u) * total >> 64);
}
// Log-softmax of a logit among logits whose masses at temperature 1 sum to `total`.
HAYATE_HOST_DEVICE inline float LogProbability(float logit, float highest, uint64_t total) {
  const double log_total = std::log(static_cast<double>(total) / static_cast<double>(kFullMass));
  return static_cast<float>(double{Plus(logit, -highest)} - log_total);
}

// The order of tokens as one integer: higher logits are larger, then lower ids. −0 equals 0.
HAYATE_HOST_DEVICE inline uint64_t KeyOf(float logit, int64_t id) {
  const uint32_t bits = std::bit_cast<uint32_t>(logit + 0.0f);
  const uint32_t ordered = bits ^ ((bits >> 31) != 0 ? 0xFFFFFFFFu : 0x80000000u);
  return uint64_t{ordered} << 32 | (0xFFFFFFFFu - static_cast<uint32_t>(id));
}
HAYATE_HOST_DEVICE inline int32_t IdOf(uint64_t key) {
  return static_cast<int32_t>(0xFFFFFFFFu - static_cast<uint32_t>(key));
}
HAYATE_HOST_DEVICE inline float LogitOf(uint64_t key) {
  const uint32_t ordered = static_cast<uint32_t>(key >> 32);
  return std::bit_cast<float>(ordered ^ ((ordered >> 31) != 0 ? 0x80000000u : 0xFFFFFFFFu));
}

}  // namespace hayate::ops::sampling
