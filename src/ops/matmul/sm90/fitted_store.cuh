#pragma once
// From the sums of a fitted tile to out: a thread's sums lie along tokens, out's rows along
// features, so that matrices are transposed on their way through shared memory.

#include "ops/matmul/sm90/fitted_tiles.cuh"
#include "ops/matmul/sm90/gemm_epilogue.cuh"

namespace hayate::ops::sm90 {

// What turns sums into results, read before the products so that it is there after them. A thread's
// rows are n and n + 8 (wgmma.cuh), features of these numbers or where gated gate and up of one;
// its columns are tokens 8j + 2(l%4), + 1 of the tile.
template <typename C>
class FittedScales {
 public:
  __device__ __forceinline__ void Load(const FittedParams& params, int32_t t0, int32_t n) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int32_t first = params.gated ? n / 16 * 8 + n % 8 : n;
    const int32_t step = params.gated ? params.n / 2 : 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t feature = first + step * half;
      const bool inside = feature < params.n;
      bias_[half] = params.bias != nullptr && inside ? __ldg(params.bias + feature) : 0.0f;
      if constexpr (C::kFp8) w_[half] = inside ? __ldg(params.w_scale + feature) : 0.0f;
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

// What a group stores at a time: kStoreOctets times eight tokens from an octet of its tile on.
struct FittedPart {
  int32_t t0;  // first token of the tile
  int octet;
  int32_t n;  // first of the group's 64 features
  __device__ int32_t t() const { return t0 + 8 * octet; }
};

// 8 × 8 matrices as StoreMatrices takes them, each transposed: what lane l has of row l / 4 becomes
// a part of column l / 4.
__device__ __forceinline__ void StoreTransposed(void* row, const uint32_t (&words)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   SharedAddress(row)),
               "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

// A consumer group's features on their way to out: its warps bring rows of tokens, and the copy
// engine takes the box on.
template <typename C>
class FittedBox {
 public:
  __device__ FittedBox(const FittedShared<C>& shared, int group)
      : box_(shared.store(group)), barrier_(1 + group) {}

  // All threads of the group, before they write.
  __device__ __forceinline__ void Take() const {
    if (leads()) WaitStoresRead<0>();  // of the last tile
    SyncThreads(barrier_, 128);
  }
  // Chunk i of 16 bytes of a token's row, where the swizzle of such rows has it.
  template <int kBytes = kRowBytes>
  __device__ __forceinline__ uint8_t* Chunk(int token, int i) const {
    static_assert(kBytes == 128 || kBytes == 64);
    const int swizzled = i ^ (kBytes == 128 ? token % 8 : token / 2 % 4);
    return box_ + token * kBytes + (swizzled << 4);
  }
  // After they wrote: to rows from t on and columns from n on.
  __device__ __forceinline__ void Send(const FittedParams& params, int32_t t, int32_t n) const {
    FenceAsyncProxy();
    SyncThreads(barrier_, 128);
    if (leads()) {
      Store2D(&params.out_map, box_, n, t);
      CommitStores();
    }
  }
  // Before the block ends.
  __device__ void End() const {
    if (leads()) WaitStoresRead<0>();
  }

 private:
  __device__ static bool leads() { return threadIdx.x % 128 == 0; }

  uint8_t* const box_;
  const int barrier_;
};

template <typename C>
__device__ __forceinline__ void StoreThroughBox(const FittedParams& params, const FittedBox<C>& box,
                                                const FittedScales<C>& scales,
                                                const float (&d)[C::kStoreSums],
                                                const FittedPart& part) {
  // Matrices of 8 tokens × 8 features of a pair of octets: features 0 … 7 and 8 … 15 of the warp
  // for the first octet, then for the second.
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int token = lane / 16 * 8 + lane % 8;
  const int chunk = static_cast<int>(threadIdx.x) % 128 / 32 * 2 + lane / 8 % 2;
  box.Take();
#pragma unroll
  for (int pair = 0; pair < C::kStoreOctets / 2; ++pair) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int j = 2 * pair + i;
      float v[4] = {d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]};
      scales.Finish(v, part.octet + j);
      words[2 * i] = PackBf16(v[0], v[1]);
      words[2 * i + 1] = PackBf16(v[2], v[3]);
    }
    StoreTransposed(box.Chunk(16 * pair + token, chunk), words);
  }
  box.Send(params, part.t(), part.n);
}

// Any alignment of out, and f32.
template <typename C>
__device__ __forceinline__ void StoreElements(const FittedParams& params,
                                              const FittedScales<C>& scales,
                                              const float (&d)[C::kStoreSums],
                                              const FittedPart& part) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int32_t n0 = part.n + static_cast<int32_t>(threadIdx.x) % 128 / 32 * 16 + lane / 4;
#pragma unroll
  for (int j = 0; j < C::kStoreOctets; ++j) {
    float v[4] = {d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]};
    scales.Finish(v, part.octet + j);
    const int32_t t0 = part.t() + 8 * j + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t t = t0 + i % 2, n = n0 + i / 2 * 8;
      if (t >= params.t || n >= params.n) continue;
      const int64_t at = t * params.out_stride + n;
      if (params.out_f32) {
        static_cast<float*>(params.out)[at] = v[i];
      } else {
        static_cast<__nv_bfloat16*>(params.out)[at] = __float2bfloat16_rn(v[i]);
      }
    }
  }
}

}  // namespace hayate::ops::sm90
