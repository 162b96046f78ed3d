#pragma once
// From accumulators to out. A slab is 64 tokens × kWidth features; its fragment is laid out as
// wgmma.cuh says.

#include <cuda_bf16.h>

#include <cstdint>

#include "ops/matmul/sm90/gemm_pipeline.cuh"

namespace hayate::ops::sm90 {

__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// Lane c of each quad exchanges its four words, so that it ends with word c of every lane.
__device__ __forceinline__ void TransposeInQuad(uint32_t (&v)[4]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t got = __shfl_xor_sync(0xffffffff, odd ? v[i] : v[i + 1], 1);
    if (odd) {
      v[i] = got;
    } else {
      v[i + 1] = got;
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t got = __shfl_xor_sync(0xffffffff, high ? v[i] : v[i + 2], 2);
    if (high) {
      v[i] = got;
    } else {
      v[i + 2] = got;
    }
  }
}

// 8 · kCount columns of one row of out, of which lane c of the quad holds columns 8i + 2c, + 1 in
// v[2i], v[2i + 1]. All lanes of a warp call it.
template <int kCount>
__device__ __forceinline__ void StoreRow(const GemmParams& params, const float (&v)[2 * kCount],
                                         int64_t row, int n0, bool inside) {
  const int c = threadIdx.x % 4;
  if (params.wide_stores && !params.out_f32) {
    auto* out = static_cast<__nv_bfloat16*>(params.out) + row;
    uint32_t words[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) words[i] = PackBf16(v[2 * i], v[2 * i + 1]);
    if constexpr (kCount == 4) {
      TransposeInQuad(words);
      const int n = n0 + 8 * c;
      if (!inside || n >= params.n) return;
      *reinterpret_cast<uint4*>(out + n) = make_uint4(words[0], words[1], words[2], words[3]);
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const int n = n0 + 8 * i + 2 * c;
        if (inside && n < params.n) *reinterpret_cast<uint32_t*>(out + n) = words[i];
      }
    }
    return;
  }
  if (!inside) return;
  if (params.wide_stores) {
    auto* out = static_cast<float*>(params.out) + row;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int n = n0 + 8 * i + 2 * c;
      if (n < params.n) *reinterpret_cast<float2*>(out + n) = make_float2(v[2 * i], v[2 * i + 1]);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < 2 * kCount; ++i) {
    const int n = n0 + i / 2 * 8 + 2 * c + i % 2;
    if (n >= params.n) continue;
    if (params.out_f32) {
      static_cast<float*>(params.out)[row + n] = v[i];
    } else {
      static_cast<__nv_bfloat16*>(params.out)[row + n] = __float2bfloat16_rn(v[i]);
    }
  }
}

// kCount groups of 8 columns from column n0 of out on, accumulators d[0 … 4 · kCount).
template <typename C, int kCount>
__device__ __forceinline__ void StoreColumns(const GemmParams& params, const float* d, int t,
                                             int t_end, int n0, const float (&row_scale)[2]) {
  const int c = threadIdx.x % 4;
  float v[2][2 * kCount];
#pragma unroll
  for (int i = 0; i < 2 * kCount; ++i) {
    const int n = n0 + i / 2 * 8 + 2 * c + i % 2;
    const bool inside = n < params.n;
    const float bias = params.bias != nullptr && inside ? __ldg(params.bias + n) : 0.0f;
    const float w_scale =
        C::kScaling == Scaling::kVector && inside ? __ldg(params.w_scale + n) : 1.0f;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = d[4 * (i / 2) + 2 * half + i % 2];
      v[half][i] = C::kScaling == Scaling::kVector || C::kCanNorm
                       ? fmaf(sum, row_scale[half] * w_scale, bias)
                       : sum + bias;
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    StoreRow<kCount>(params, v[half], (t + 8 * half) * params.out_stride, n0, t + 8 * half < t_end);
  }
}

// A value for each of a tile's kWidth features, spread over a warp: lane l has those of features
// 8(8i + l/4) + 2(l%4), + 1.
template <int kWidth>
class FeatureValues {
 public:
  __device__ __forceinline__ void Load(const float* values, int n0, int n) {
    const int lane = threadIdx.x % 32, first = n0 + lane / 4 * 8 + lane % 4 * 2;
#pragma unroll
    for (int i = 0; i < kWidth / 64; ++i) {
      mine_[i].x = first + 64 * i < n ? __ldg(values + first + 64 * i) : 0.0f;
      mine_[i].y = first + 64 * i + 1 < n ? __ldg(values + first + 64 * i + 1) : 0.0f;
    }
  }
  // Of features 8j + 2(l%4), + 1. All lanes call it.
  __device__ __forceinline__ float2 At(int j) const {
    const int source = j % 8 * 4 + static_cast<int>(threadIdx.x) % 4;
    return {__shfl_sync(0xffffffff, mine_[j / 8].x, source),
            __shfl_sync(0xffffffff, mine_[j / 8].y, source)};
  }

 private:
  static_assert(kWidth % 64 == 0);
  float2 mine_[kWidth / 64];
};

// What turns the sums of a wide tile into results, read before the products so that it is there
// after them.
template <typename C>
struct TileScales {
  FeatureValues<C::kWidth> w;
  float x[C::kSlabs][2];

  __device__ __forceinline__ void Load(const GemmParams& params, int t0, int n0) {
    if constexpr (C::kScaling != Scaling::kVector) return;
    w.Load(params.w_scale, n0, params.n);
    const int t =
        t0 + static_cast<int>(threadIdx.x) % 128 / 32 * 16 + static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int slab = 0; slab < C::kSlabs; ++slab) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = t + slab * 64 + half * 8;
        x[slab][half] = row < params.t ? __ldg(params.x_scale + row) : 0.0f;
      }
    }
  }
};

// Wide tiles in bf16: a warp brings its 16 rows, 64 features at a time, into a box in shared memory
// that the copy engine stores while the warp goes on. Nothing of it waits for memory.
template <typename C>
class BoxStore {
 public:
  __device__ explicit BoxStore(const GemmShared<C>& shared)
      : shared_(shared), warp_(static_cast<int>(threadIdx.x) / 32 - 4) {}

  // Rows of the slab are tokens t0 …, columns are features n0 ….
  __device__ __forceinline__ void Slab(const GemmParams& params, const TileScales<C>& scales,
                                       const float (&d)[C::kRegs], int slab, int t0, int n0) {
    const int warp_t = t0 + slab * 64 + warp_ % 4 * kStoreRows;
    if (warp_t >= params.t) return;
    FeatureValues<C::kWidth> bias;
    if (params.bias != nullptr) bias.Load(params.bias, n0, params.n);
#pragma unroll
    for (int box = 0; box < C::kWidth / 64; ++box) {
      uint8_t* to = shared_.store_box(warp_, buffer_);
      buffer_ = (buffer_ + 1) % C::kStoreBuffers;
      if (threadIdx.x % 32 == 0) WaitStoresRead<C::kStoreBuffers - 1>();
      __syncwarp();
#pragma unroll
      for (int pair = 0; pair < 4; ++pair) {
        uint32_t words[4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int j = box * 8 + pair * 2 + i;
          float2 v[2] = {{d[4 * j], d[4 * j + 1]}, {d[4 * j + 2], d[4 * j + 3]}};
          Finish(params, scales, bias, slab, j, v);
          words[2 * i] = PackBf16(v[0].x, v[0].y);
          words[2 * i + 1] = PackBf16(v[1].x, v[1].y);
        }
        StoreMatrices(RowOfBox(to, pair), words);
      }
      FenceAsyncProxy();
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        Store2D(&params.out_map, to, n0 + box * 64, warp_t);
        CommitStores();
      }
    }
  }
  // Before the block ends.
  __device__ void End() const {
    if (threadIdx.x % 32 == 0) WaitStoresRead<0>();
  }

 private:
  // Sums of features 8j + 2(l%4), + 1 of two rows become results.
  __device__ __forceinline__ void Finish(const GemmParams& params, const TileScales<C>& scales,
                                         const FeatureValues<C::kWidth>& bias, int slab, int j,
                                         float2 (&v)[2]) const {
    const float2 add = params.bias != nullptr ? bias.At(j) : make_float2(0.0f, 0.0f);
    float2 w = {1.0f, 1.0f};
    if constexpr (C::kScaling == Scaling::kVector) w = scales.w.At(j);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float x = C::kScaling == Scaling::kVector ? scales.x[slab][half] : 1.0f;
      v[half].x = fmaf(v[half].x, x * w.x, add.x);
      v[half].y = fmaf(v[half].y, x * w.y, add.y);
    }
  }
  // Matrices 8 × 8 of features 16 · pair …: rows 0 … 7 and 8 … 15 of the first eight, then of the
  // next. 16-byte chunks of a row of 128 bytes lie where the 128-byte swizzle has them.
  __device__ __forceinline__ uint8_t* RowOfBox(uint8_t* box, int pair) const {
    const int lane = threadIdx.x % 32, row = lane % 16, chunk = 2 * pair + lane / 16;
    return box + row * kRowBytes + ((chunk ^ row % 8) << 4);
  }

  const GemmShared<C>& shared_;
  const int warp_;
  int buffer_ = 0;
};

// Rows of the slab are tokens t0 … below t_end, columns are features n0 …. This thread's rows get
// `row_scale` besides.
template <typename C>
__device__ __forceinline__ void StoreSlab(const GemmParams& params, const float (&d)[C::kRegs],
                                          int t0, int t_end, int n0, float2 row_scale) {
  const int warp_t = t0 + static_cast<int>(threadIdx.x) % 128 / 32 * 16;
  const int end = min(t_end, params.t);
  if (warp_t >= end) return;
  const int t = warp_t + static_cast<int>(threadIdx.x) % 32 / 4;
  float scales[2] = {row_scale.x, row_scale.y};
  if constexpr (C::kScaling == Scaling::kVector) {
    if (t < end) scales[0] = params.x_scale[t];
    if (t + 8 < end) scales[1] = params.x_scale[t + 8];
  }
  constexpr int kGroups = C::kWidth / 8, kWhole = kGroups / 4 * 4;
#pragma unroll
  for (int j = 0; j < kWhole; j += 4) {
    StoreColumns<C, 4>(params, d + 4 * j, t, end, n0 + 8 * j, scales);
  }
  if constexpr (kGroups > kWhole) {
    StoreColumns<C, kGroups - kWhole>(params, d + 4 * kWhole, t, end, n0 + 8 * kWhole, scales);
  }
}

}  // namespace hayate::ops::sm90
