#pragma once
// What a narrow bf16 tile does besides storing its sums, so that no launch of its own has to
// (GemmArgs): the division of a norm that was left to this product, SwiGLU, and the residual's sum
// with the first half of the norm behind it. A group has one slab of a narrow tile's tokens, and
// what is said of a thread's two rows (t, t + 8) and columns is of its fragment (wgmma.cuh).

#include "ops/activation/sm90/silu.cuh"
#include "ops/matmul/sm90/gemm_epilogue.cuh"

namespace hayate::ops::sm90 {

__device__ __forceinline__ float RoundedToBf16(float x) {
  return __bfloat162float(__float2bfloat16_rn(x));
}

// silu(gate) · up of 4 · kCount features of out, whose sums lie side by side. The sums are rounded
// as if they had been stored between.
template <int kCount>
__device__ __forceinline__ void StoreGated(const GemmParams& params, const float* d, int t,
                                           int t_end, int n0, const float (&row_scale)[2]) {
  const int c = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const bool inside = t + 8 * half < t_end;
    auto* out = static_cast<__nv_bfloat16*>(params.out) + (t + 8 * half) * params.out_stride;
    float v[kCount];
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const float gate = RoundedToBf16(d[4 * j + 2 * half] * row_scale[half]);
      const float up = RoundedToBf16(d[4 * j + 2 * half + 1] * row_scale[half]);
      v[j] = Silu(gate, __nv_bfloat16{}) * up;
    }
    if constexpr (kCount == 4) {
      if (params.wide_stores) {
        uint32_t words[4];
#pragma unroll
        for (int j = 0; j < 4; ++j) words[j] = __float_as_uint(v[j]);
        TransposeInQuad(words);
        const int n = n0 / 2 + 4 * c;
        if (!inside || n >= params.n / 2) continue;
        *reinterpret_cast<uint2*>(out + n) =
            make_uint2(PackBf16(__uint_as_float(words[0]), __uint_as_float(words[1])),
                       PackBf16(__uint_as_float(words[2]), __uint_as_float(words[3])));
        continue;
      }
    }
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const int n = n0 / 2 + 4 * j + c;
      if (inside && n < params.n / 2) out[n] = __float2bfloat16_rn(v[j]);
    }
  }
}

// The rows of the residual stream and the norm's weights that meet a tile's sums.
template <typename C>
class ResidualTile {
 public:
  // Whether registers hold them through the products.
  static constexpr bool kEarly = C::kWidth <= 48;

  __device__ __forceinline__ void Load(const GemmParams& params, int t, int n0) {
#pragma unroll
    for (int j = 0; j < kGroups; ++j) {
      const int n = Column(n0, j);
      if (n >= params.n) continue;
      weight_[j] = __ldg(reinterpret_cast<const float2*>(params.norm_weight + n));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (t + 8 * half < params.t) residual_[half][j] = *Place(params, t + 8 * half, n);
      }
    }
  }

  // residual += sums; out = residual · weight; squares = Σ residual² of the group's columns.
  __device__ __forceinline__ void Store(const GemmParams& params, const float* d, int t,
                                        int n0) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = t + 8 * half;
      float squares = 0.0f;
      if (row < params.t) {
        auto* out = static_cast<__nv_bfloat16*>(params.out) + row * params.out_stride;
#pragma unroll
        for (int j = 0; j < kGroups; ++j) {
          const int n = Column(n0, j);
          if (n >= params.n) continue;
          float2 sum = residual_[half][j];
          sum.x += d[4 * j + 2 * half];
          sum.y += d[4 * j + 2 * half + 1];
          squares += sum.x * sum.x + sum.y * sum.y;
          *Place(params, row, n) = sum;
          *reinterpret_cast<uint32_t*>(out + n) =
              PackBf16(sum.x * weight_[j].x, sum.y * weight_[j].y);
        }
      }
      squares += __shfl_xor_sync(0xffffffff, squares, 1);
      squares += __shfl_xor_sync(0xffffffff, squares, 2);
      if (row < params.t && threadIdx.x % 4 == 0) {
        params.squares[row * params.parts + n0 / C::kWidth] = squares;
      }
    }
  }

 private:
  static constexpr int kGroups = C::kWidth / 8;
  static __device__ __forceinline__ int Column(int n0, int j) {
    return n0 + 8 * j + 2 * (static_cast<int>(threadIdx.x) % 4);
  }
  static __device__ __forceinline__ float2* Place(const GemmParams& params, int row, int n) {
    return reinterpret_cast<float2*>(params.residual + int64_t{row} * params.n + n);
  }
  float2 residual_[2][kGroups], weight_[kGroups];
};

// The warps beside the one that fetches: the factors that the norm of x left to this product, each
// of a row's sum of squares. There are at most kTileT rows.
template <typename C>
__device__ __forceinline__ void ScaleRows(const GemmParams& params, const GemmShared<C>& shared) {
  WaitForPriorLaunches();
  const int lane = threadIdx.x % 32, warp = static_cast<int>(threadIdx.x) / 32 - 1;
  for (int row = warp; row < params.t; row += kScalingWarps) {
    const float* parts = params.x_squares + row * params.x_parts;
    float sum = 0.0f;
#pragma unroll 4
    for (int part = lane; part < params.x_parts; part += 32) sum += parts[part];
#pragma unroll
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(0xffffffff, sum, other);
    const float scale = 1.0f / sqrtf(sum / params.x_columns + params.x_eps);
    if (lane == 0) shared.row_scales()[row] = scale;
  }
  __syncwarp();
  if (lane == 0) Arrive(shared.scaled());
}

template <typename C>
class FusedStore {
 public:
  __device__ explicit FusedStore(const GemmShared<C>& shared) : shared_(shared) {}

  // Before the products of a tile, so that what it reads is there after them.
  __device__ __forceinline__ void Begin(const GemmParams& params, int t0, int n0) {
    if constexpr (C::kCanNorm) {
      // Up to 16 tokens are rows of a group's first warp, and of the first group where it stores.
      if (threadIdx.x % 128 >= 32 || (C::kSplitK && threadIdx.x >= 256)) return;
      if (Residual::kEarly && params.residual != nullptr) residual_.Load(params, t0 + Row(), n0);
    }
  }
  // Whether it stored the slab.
  __device__ __forceinline__ bool Slab(const GemmParams& params, const float (&d)[C::kRegs], int t0,
                                       int t_end, int n0) {
    const int warp_t = t0 + static_cast<int>(threadIdx.x) % 128 / 32 * 16;
    const int end = min(t_end, params.t);
    if constexpr (C::kCanNorm) {
      if (params.residual != nullptr) {
        if (warp_t >= end) return true;
        if (!Residual::kEarly) residual_.Load(params, warp_t + Row(), n0);
        residual_.Store(params, d, warp_t + Row(), n0);
        return true;
      }
    }
    if (!params.gated) return false;
    if (warp_t >= end) return true;
    const float2 row_scale = RowScale(params);
    const float scales[2] = {row_scale.x, row_scale.y};
    constexpr int kGroups = C::kWidth / 8, kWhole = kGroups / 4 * 4;
#pragma unroll
    for (int j = 0; j < kWhole; j += 4) {
      StoreGated<4>(params, d + 4 * j, warp_t + Row(), end, n0 + 8 * j, scales);
    }
    if constexpr (kGroups > kWhole) {
      StoreGated<kGroups - kWhole>(params, d + 4 * kWhole, warp_t + Row(), end, n0 + 8 * kWhole,
                                   scales);
    }
    return true;
  }
  // Of this thread's rows.
  __device__ __forceinline__ float2 RowScale(const GemmParams& params) const {
    if constexpr (C::kCanNorm) {
      if (params.x_squares != nullptr) {
        Wait(shared_.scaled(), 0);
        return {shared_.row_scales()[Row()], shared_.row_scales()[Row() + 8]};
      }
    }
    return {1.0f, 1.0f};
  }

 private:
  static __device__ __forceinline__ int Row() { return static_cast<int>(threadIdx.x) % 32 / 4; }

  struct Nothing {};
  using Residual = std::conditional_t<C::kCanNorm, ResidualTile<C>, Nothing>;
  const GemmShared<C>& shared_;
  Residual residual_;
};

}  // namespace hayate::ops::sm90
