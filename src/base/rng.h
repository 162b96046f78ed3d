#pragma once
// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
// 1, 2, 3", SC'11). A value is a pure function of (seed, counter), so a device kernel and the CPU
// draw the same number for the same (request seed, token position) whatever else runs.

#include <array>
#include <cstdint>

namespace hayate {

inline constexpr std::array<uint32_t, 4> Philox4x32(uint64_t seed, uint64_t counter_lo,
                                                    uint64_t counter_hi) {
  uint32_t c0 = static_cast<uint32_t>(counter_lo), c1 = static_cast<uint32_t>(counter_lo >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_hi), c3 = static_cast<uint32_t>(counter_hi >> 32);
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

// Uniform in [0, 1) with 24 bits, exactly representable in float.
inline constexpr float UnitFloat(uint32_t bits) {
  return static_cast<float>(bits >> 8) * (1.0f / 16777216.0f);
}

// A stream of numbers for hosts: tests, jitter, dummy weights. Not thread-safe.
class Rng {
 public:
  explicit Rng(uint64_t seed) : seed_(seed) {}

  uint32_t NextU32() {
    if (used_ == 4) {
      block_ = Philox4x32(seed_, counter_++, 0);
      used_ = 0;
    }
    return block_[used_++];
  }
  uint64_t NextU64() {
    const uint64_t high = NextU32();
    return high << 32 | NextU32();
  }
  float NextFloat() { return UnitFloat(NextU32()); }
  // Uniform in [0, bound); bound > 0. Multiply-shift: the bias is below 2^-32.
  uint32_t Below(uint32_t bound) {
    return static_cast<uint32_t>(uint64_t{NextU32()} * bound >> 32);
  }
  // Uniform in [low, high], both included.
  int Between(int low, int high) {
    return low + static_cast<int>(Below(static_cast<uint32_t>(high - low + 1)));
  }
  // Standard normal (Box–Muller).
  float NextNormal();

 private:
  uint64_t seed_;
  uint64_t counter_ = 0;
  std::array<uint32_t, 4> block_{};
  uint32_t used_ = 4;
};

}  // namespace hayate
