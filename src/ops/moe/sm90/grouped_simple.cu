// The grouped product without tensor cores: the exact mode, and rows that are no whole number of 16
// bytes.
// Tile    kTile pairs of an expert by kTile features, kTile columns a step
// Order   fp32 products in order of k

#include "base/align.h"
#include "base/check.h"
#include "ops/activation/sm90/glu.cuh"
#include "ops/detail/sm90/eight.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "ops/moe/sm90/pairs.cuh"

namespace hayate::ops::sm90 {
namespace {

constexpr int kTile = 32;
constexpr int kRows = 8;  // of threads; each sums kTile / kRows pairs

// `gated`: features come in twos, gate and up.
template <typename X, typename W, bool kGated>
__global__ void __launch_bounds__(kTile* kRows)
    SimpleKernel(const __grid_constant__ GroupedProductArgs a, X* out, const X* x) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  constexpr int kSets = kGated ? 2 : 1;
  __shared__ float xs[kTile][kTile + 1], ws[kSets][kTile][kTile + 1];
  const ExpertTile tile = TileOf(a.pairs, static_cast<int32_t>(blockIdx.y));
  if (tile.count == 0) return;
  const int64_t k = a.w.k, features = a.w.n / kSets;
  const int64_t n0 = static_cast<int64_t>(blockIdx.x) * kTile;
  const int column = threadIdx.x, first = threadIdx.y;
  const std::byte* storage = a.w.storage[tile.expert];
  const W* w[kSets];
#pragma unroll
  for (int s = 0; s < kSets; ++s) w[s] = reinterpret_cast<const W*>(storage + a.w.codes[s]);
  float sum[kSets][kTile / kRows] = {};
  for (int64_t k0 = 0; k0 < k; k0 += kTile) {
    const bool inside = k0 + column < k;
    for (int row = first; row < kTile; row += kRows) {
      xs[row][column] = 0.0f;
      if (inside && row < tile.count) {
        const int64_t x_row = PairOf(a.pairs, tile, row) / a.pairs_per_row;
        xs[row][column] = ToFloat(x[x_row * a.x_stride + k0 + column]);
      }
#pragma unroll
      for (int s = 0; s < kSets; ++s) {
        ws[s][row][column] =
            inside && n0 + row < features ? ToFloat(w[s][(n0 + row) * k + k0 + column]) : 0.0f;
      }
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
#pragma unroll
      for (int r = 0; r < kTile / kRows; ++r) {
#pragma unroll
        for (int s = 0; s < kSets; ++s) {
          sum[s][r] = fmaf(xs[first + r * kRows][i], ws[s][column][i], sum[s][r]);
        }
      }
    }
    __syncthreads();
  }
  const int64_t feature = n0 + column;
  if (feature >= features) return;
  const float* bias = a.bias == nullptr ? nullptr : a.bias + tile.expert * a.w.n + feature;
#pragma unroll
  for (int r = 0; r < kTile / kRows; ++r) {
    if (first + r * kRows >= tile.count) continue;
    const int64_t pair = PairOf(a.pairs, tile, first + r * kRows);
    float value = sum[0][r] + (bias == nullptr ? 0.0f : bias[0]);
    if constexpr (kGated) {
      value = GatedUnit(value, sum[1][r] + (bias == nullptr ? 0.0f : bias[features]), a.form);
    }
    if (a.weights != nullptr) value *= a.weights[pair];
    FromFloat(value, out + pair * a.out_stride + feature);
  }
}

template <typename X, typename W>
void Launch(const Stream& stream, const GroupedProductArgs& args) {
  const int64_t features = args.gated ? args.w.n / 2 : args.w.n;
  const dim3 grid(static_cast<unsigned>(CeilDiv<int64_t>(features, kTile)),
                  static_cast<unsigned>(args.pairs.max_tiles));
  LaunchDependent(stream, args.gated ? SimpleKernel<X, W, true> : SimpleKernel<X, W, false>, grid,
                  dim3(kTile, kRows), 0, args, reinterpret_cast<X*>(args.out.data),
                  reinterpret_cast<const X*>(args.x.data));
}

template <typename X>
void LaunchFrom(const Stream& stream, const GroupedProductArgs& args) {
  if (args.w.layout == MatrixLayout::kF32) return Launch<X, float>(stream, args);
  CHECK(args.w.layout == MatrixLayout::kBf16) << static_cast<int>(args.w.layout);
  Launch<X, __nv_bfloat16>(stream, args);
}

}  // namespace

void GroupedSimple(Stream stream, const GroupedProductArgs& args) {
  CHECK_LE(args.pairs.tile_tokens, kTile);
  if (args.x.dtype == DType::kF32) {
    LaunchFrom<float>(stream, args);
  } else {
    CHECK(args.x.dtype == DType::kBF16) << Info(args.x.dtype).name;
    LaunchFrom<__nv_bfloat16>(stream, args);
  }
  CUDA_CHECK_LAUNCH(stream, "grouped_simple", args.x.rows(), args.w.n, args.w.k);
}

}  // namespace hayate::ops::sm90
