#pragma once
// A warp's tile of keys: loads from the cache into registers, scores and weighted values by
// m16n8k16, both transposed so that the queries are the narrow side:
//
//   Sᵀ[keys, queries] = K · Qᵀ          A = K as it lies, B = Qᵀ
//   Oᵀ[D, queries]   += Vᵀ · Pᵀ         A = Vᵀ, from pairs of values by byte permutes
//
// Nothing goes through shared memory, because no other warp wants these keys: a lane's 16-byte load
// is already an operand once features are renumbered. A sum over features may run in any order, so
// lane (r, j) takes as "its" k of the score's operand the features of the chunk of 16 bytes that it
// loaded (chunk 4i + j of keys r and r + 8), and the queries are laid out to match. For values it
// loads chunk 8i + r of keys 2j, 2j + 1, 2j + 8, 2j + 9; output row r of tile m is then feature
// kChunk · (8i + r) + 2m, row r + 8 the one after it.

#include <type_traits>

#include "base/align.h"
#include "ops/attention/sm90/mma.cuh"
#include "ops/attention/sm90/numbers.cuh"

namespace hayate::ops::sm90 {

template <typename TCache, int kHeadDim, int kQueryTiles>
struct DecodeShape {
  using Cache = TCache;
  // What the products multiply: bf16, and fp16 for e4m3 caches, which it holds exactly.
  using Operand = std::conditional_t<sizeof(TCache) == 1, __half, __nv_bfloat16>;
  static constexpr int kD = kHeadDim;
  static constexpr int kTiles = kQueryTiles;               // of 8 queries
  static constexpr int kChunk = 16 / sizeof(TCache);       // elements of a load
  static constexpr int kChunks = kHeadDim / kChunk;        // of a key
  static constexpr int kKeyLoads = CeilDiv(kChunks, 4);    // a lane and key
  static constexpr int kValueLoads = CeilDiv(kChunks, 8);  // a lane and value
  // Subtiles of 16 keys: what 255 registers hold next to the output.
  static constexpr int kSubtiles =
      (kQueryTiles == 1 && kHeadDim <= 128 ? 2 : 1) * (2 / sizeof(TCache));
  static constexpr int kKeys = 16 * kSubtiles;
  static constexpr int kStepsPerLoad = kChunk / 4;  // 16-feature steps of a score
  static constexpr int kSteps = kKeyLoads * kStepsPerLoad;
  static constexpr int kRowTilesPerLoad = kChunk / 2;  // 16-feature tiles of an output
  static constexpr int kRowTiles = kValueLoads * kRowTilesPerLoad;
};

__device__ __forceinline__ uint32_t Word(const uint4& x, int i) {
  return i == 0 ? x.x : i == 1 ? x.y : i == 2 ? x.z : x.w;
}

template <typename S>
struct KeyTile {
  uint4 x[S::kSubtiles][2][S::kKeyLoads];

  // `keys` [kKeys, D]. Chunks past the head repeat its last one; their query elements are zero.
  __device__ __forceinline__ void Load(const typename S::Cache* keys) {
    const int r = threadIdx.x % 32 / 4, j = threadIdx.x % 4;
#pragma unroll
    for (int u = 0; u < S::kSubtiles; ++u) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const auto* key = keys + (16 * u + 8 * half + r) * S::kD;
#pragma unroll
        for (int i = 0; i < S::kKeyLoads; ++i) {
          x[u][half][i] = LoadStreamed(key + min(4 * i + j, S::kChunks - 1) * S::kChunk);
        }
      }
    }
  }

  // `queries`: [kTiles][kSteps][32 lanes] operands in shared memory.
  __device__ __forceinline__ void Scores(const uint2* queries,
                                         float (&s)[S::kSubtiles][S::kTiles][4]) const {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int u = 0; u < S::kSubtiles; ++u) {
#pragma unroll
      for (int n = 0; n < S::kTiles; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) s[u][n][e] = 0.0f;
      }
    }
#pragma unroll
    for (int step = 0; step < S::kSteps; ++step) {
      uint2 b[S::kTiles];
#pragma unroll
      for (int n = 0; n < S::kTiles; ++n) b[n] = queries[(n * S::kSteps + step) * 32 + lane];
#pragma unroll
      for (int u = 0; u < S::kSubtiles; ++u) {
        uint32_t a[4];
        Operand(u, step, a);
#pragma unroll
        for (int n = 0; n < S::kTiles; ++n) {
          Mma(s[u][n], a, b[n].x, b[n].y, typename S::Operand{});
        }
      }
    }
  }

 private:
  __device__ __forceinline__ void Operand(int u, int step, uint32_t (&a)[4]) const {
    const int load = step / S::kStepsPerLoad, part = step % S::kStepsPerLoad;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4& chunk = x[u][half][load];
      if constexpr (sizeof(typename S::Cache) == 1) {
        a[half] = HalvesOfE4M3(Word(chunk, part));
        a[half + 2] = HalvesOfE4M3(Word(chunk, part) >> 16);
      } else {
        a[half] = Word(chunk, 2 * part);
        a[half + 2] = Word(chunk, 2 * part + 1);
      }
    }
  }
};

// Feature of output element (row r + 8 · half) of tile m in this lane.
template <typename S>
__device__ __forceinline__ int OutputFeature(int m) {
  const int r = threadIdx.x % 32 / 4;
  return S::kChunk * (8 * (m / S::kRowTilesPerLoad) + r) + 2 * (m % S::kRowTilesPerLoad);
}

template <typename S>
struct ValueTile {
  uint4 x[S::kSubtiles][4][S::kValueLoads];

  __device__ __forceinline__ static int Key(int u, int k) {
    return 16 * u + 2 * (threadIdx.x % 4) + (k / 2) * 8 + k % 2;
  }

  // `values` [kKeys, D]. Chunks past the head repeat its last one; nobody stores their sums.
  __device__ __forceinline__ void Load(const typename S::Cache* values) {
    const int r = threadIdx.x % 32 / 4;
#pragma unroll
    for (int u = 0; u < S::kSubtiles; ++u) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const auto* value = values + Key(u, k) * S::kD;
#pragma unroll
        for (int i = 0; i < S::kValueLoads; ++i) {
          x[u][k][i] = LoadStreamed(value + min(8 * i + r, S::kChunks - 1) * S::kChunk);
        }
      }
    }
  }

  // Values from `count` on were never written and may be NaN; a weight of 0 would not hide that.
  __device__ __forceinline__ void ZeroFrom(int count) {
#pragma unroll
    for (int u = 0; u < S::kSubtiles; ++u) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (Key(u, k) < count) continue;
#pragma unroll
        for (int i = 0; i < S::kValueLoads; ++i) x[u][k][i] = make_uint4(0, 0, 0, 0);
      }
    }
  }

  // o += values · p, with p [subtile][query tile][2] operands.
  __device__ __forceinline__ void Add(const uint32_t (&p)[S::kSubtiles][S::kTiles][2],
                                      float (&o)[S::kRowTiles][S::kTiles][4]) const {
#pragma unroll
    for (int u = 0; u < S::kSubtiles; ++u) {
#pragma unroll
      for (int m = 0; m < S::kRowTiles; ++m) {
        uint32_t a[4];
        Operand(u, m, a);
#pragma unroll
        for (int n = 0; n < S::kTiles; ++n) {
          Mma(o[m][n], a, p[u][n][0], p[u][n][1], typename S::Operand{});
        }
      }
    }
  }

 private:
  __device__ __forceinline__ void Operand(int u, int m, uint32_t (&a)[4]) const {
    const int load = m / S::kRowTilesPerLoad, part = m % S::kRowTilesPerLoad;
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // keys 2j, 2j + 1; then 2j + 8, 2j + 9
      if constexpr (sizeof(typename S::Cache) == 1) {
        const uint32_t low = Word(x[u][2 * half][load], part / 2);
        const uint32_t high = Word(x[u][2 * half + 1][load], part / 2);
        const uint32_t bytes = __byte_perm(low, high, part % 2 == 0 ? 0x5140 : 0x7362);
        a[2 * half] = HalvesOfE4M3(bytes);
        a[2 * half + 1] = HalvesOfE4M3(bytes >> 16);
      } else {
        const uint32_t low = Word(x[u][2 * half][load], part);
        const uint32_t high = Word(x[u][2 * half + 1][load], part);
        a[2 * half] = __byte_perm(low, high, 0x5410);
        a[2 * half + 1] = __byte_perm(low, high, 0x7632);
      }
    }
  }
};

}  // namespace hayate::ops::sm90
