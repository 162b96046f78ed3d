#pragma once
// From the sums of a fitted tile to out: a thread's sums lie along tokens, out's rows along
// features, so that matrices are transposed on their way through shared memory.

#include "ops/matmul/sm90/fitted_tiles.cuh"
#include "ops/matmul/sm90/gemm_epilogue.cuh"

namespace hayate::ops::sm90 {

// What turns sums into results, read before the products so that it is there after them. A thread's
// rows are features n and n + 8 (wgmma.cuh); its columns tokens 8j + 2(l%4), + 1 of the tile.
template <typename C>
class FittedScales {
 public:
  __device__ __forceinline__ void Load(const FittedParams& params, int32_t t0, int32_t n) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const bool inside = n + 8 * half < params.n;
      bias_[half] = params.bias != nullptr && inside ? __ldg(params.bias + n + 8 * half) : 0.0f;
      if constexpr (C::kFp8) w_[half] = inside ? __ldg(params.w_scale + n + 8 * half) : 0.0f;
    }
    if constexpr (C::kFp8) {
      const int32_t t = t0 + lane / 4 * 8 + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < kSpread; ++i) {
        x_[i].x = t + 64 * i < params.t ? __ldg(params.x_scale + t + 64 * i) : 0.0f;
        x_[i].y = t + 64 * i + 1 < params.t ? __ldg(params.x_scale + t + 64 * i + 1) : 0.0f;
      }
    }
  }

  // Sums of tokens 8j + 2(l%4), + 1 of feature n, then of n + 8, become results. All lanes of a
  // warp call it.
  __device__ __forceinline__ void Finish(float (&v)[4], int j) const {
    float x = 1.0f, y = 1.0f;
    if constexpr (C::kFp8) {
      const int source = j % 8 * 4 + static_cast<int>(threadIdx.x) % 4;
      x = __shfl_sync(0xffffffff, x_[j / 8].x, source);
      y = __shfl_sync(0xffffffff, x_[j / 8].y, source);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float w = C::kFp8 ? w_[half] : 1.0f;
      v[2 * half] = fmaf(v[2 * half], x * w, bias_[half]);
      v[2 * half + 1] = fmaf(v[2 * half + 1], y * w, bias_[half]);
    }
  }

 private:
  // Lane l has the scales of tokens 8(8i + l/4) + 2(l%4), + 1.
  static constexpr int kSpread = C::kFp8 ? (C::kTileT + 63) / 64 : 1;
  float bias_[2];
  float w_[2];
  float2 x_[kSpread];
};

// Four 8 × 8 matrices as StoreMatrices takes them, each transposed: what lane l has of row l / 4
// becomes a part of column l / 4.
__device__ __forceinline__ void StoreTransposed(void* row, const uint32_t (&words)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   SharedAddress(row)),
               "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

// A consumer group's 64 features.
template <typename C>
class FittedStore {
 public:
  __device__ FittedStore(const FittedShared<C>& shared, int group)
      : shared_(shared), group_(group) {}

  // kOctets times eight tokens from octet `first` of the tile on; t0, n0 are the first token of the
  // tile and the first feature of the group.
  template <int kOctets>
  __device__ __forceinline__ void Tile(const FittedParams& params, const FittedScales<C>& scales,
                                       const float (&d)[4 * kOctets], int first, int32_t t0,
                                       int32_t n0) {
    if (params.bulk_stores) {
      Box<kOctets>(params, scales, d, first, t0, n0);
    } else {
      Elements<kOctets>(params, scales, d, first, t0, n0);
    }
  }
  // Before the block ends.
  __device__ void End() const {
    if (leads()) WaitStoresRead<0>();
  }

 private:
  __device__ bool leads() const { return threadIdx.x % 128 == 0; }

  // The warps bring their 16 features each, and the copy engine takes the box on.
  template <int kOctets>
  __device__ __forceinline__ void Box(const FittedParams& params, const FittedScales<C>& scales,
                                      const float (&d)[4 * kOctets], int first, int32_t t0,
                                      int32_t n0) {
    static_assert(kOctets % 2 == 0 && 8 * kOctets == C::kStoreTokens);
    uint8_t* const box = shared_.store(group_);
    if (leads()) WaitStoresRead<0>();  // of the last tile
    SyncThreads(1 + group_, 128);
#pragma unroll
    for (int pair = 0; pair < kOctets / 2; ++pair) {
      uint32_t words[4];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int j = 2 * pair + i;
        float v[4] = {d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]};
        scales.Finish(v, first + j);
        words[2 * i] = PackBf16(v[0], v[1]);
        words[2 * i + 1] = PackBf16(v[2], v[3]);
      }
      StoreTransposed(RowOfBox(box, pair), words);
    }
    FenceAsyncProxy();
    SyncThreads(1 + group_, 128);
    if (leads()) {
      Store2D(&params.out_map, box, n0, t0 + 8 * first);
      CommitStores();
    }
  }

  // Matrices of 8 tokens × 8 features of a pair of octets: features 0 … 7 and 8 … 15 of the warp
  // for the first octet, then for the second. 16-byte chunks of a token's 128 bytes lie where the
  // 128-byte swizzle has them.
  __device__ __forceinline__ uint8_t* RowOfBox(uint8_t* box, int pair) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) % 128 / 32;
    const int row = 16 * pair + lane / 16 * 8 + lane % 8, chunk = 2 * warp + lane / 8 % 2;
    return box + row * kRowBytes + ((chunk ^ row % 8) << 4);
  }

  template <int kOctets>
  __device__ __forceinline__ void Elements(const FittedParams& params,
                                           const FittedScales<C>& scales,
                                           const float (&d)[4 * kOctets], int first, int32_t t0,
                                           int32_t n0) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int32_t n = n0 + static_cast<int32_t>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
#pragma unroll
    for (int j = 0; j < kOctets; ++j) {
      float v[4] = {d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]};
      scales.Finish(v, first + j);
      const int32_t t = t0 + (first + j) * 8 + lane % 4 * 2;
#pragma unroll
      for (int i = 0; i < 4; ++i) Element(params, t + i % 2, n + i / 2 * 8, v[i]);
    }
  }
  static __device__ __forceinline__ void Element(const FittedParams& params, int32_t t, int32_t n,
                                                 float value) {
    if (t >= params.t || n >= params.n) return;
    const int64_t at = t * params.out_stride + n;
    if (params.out_f32) {
      static_cast<float*>(params.out)[at] = value;
    } else {
      static_cast<__nv_bfloat16*>(params.out)[at] = __float2bfloat16_rn(value);
    }
  }

  const FittedShared<C>& shared_;
  const int group_;
};

}  // namespace hayate::ops::sm90
