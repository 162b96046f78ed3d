#pragma once
// The tile registers of one core, an instruction a function. The kernels take the unit as a
// template parameter; tests give them one that is plain arithmetic.

#include <cstdint>

#if defined(__x86_64__)

namespace hayate::ops::matmul::amx {

inline constexpr int kMaxTileRows = 16;
inline constexpr int kMaxTileRowBytes = 64;

// What LDTILECFG reads. Tile i is `rows[i]` rows of `row_bytes[i]` bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Every function needs amx_int8 of CpuFeatures. Configure and Release frame the others on a thread:
// between them the kernel saves 8 KiB more at every switch.
struct TileUnit {
  void Configure(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }
  void Release() { asm volatile("tilerelease"); }

  // Row r of the tile is read from, or written to, base + r · stride.
  template <int kTile>
  void Load(const void* base, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(base), "r"(stride), "i"(kTile) : "memory");
  }
  template <int kTile>
  void Store(void* base, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(base), "r"(stride), "i"(kTile)
                 : "memory");
  }
  template <int kTile>
  void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  // Sums of 32 bits: sums[m][n] += Σ a[m][4i + j] · b[i][4n + j], a signed and b unsigned bytes.
  template <int kSums, int kA, int kB>
  void DotSignedUnsigned() {
    asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSums), "i"(kA), "i"(kB));
  }
};

}  // namespace hayate::ops::matmul::amx

#endif  // __x86_64__
