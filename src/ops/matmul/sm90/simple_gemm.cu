#include "ops/matmul/sm90/simple_gemm.h"

#include "base/align.h"
#include "base/check.h"
#include "ops/detail/sm90/eight.cuh"
#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int kTile = 32;  // tokens, features and columns of a step
constexpr int kRows = 8;   // of threads; each sums kTile / kRows tokens

template <typename X, typename W, typename Out>
__global__ void __launch_bounds__(kTile* kRows)
    SimpleGemmKernel(Out* out, int64_t out_stride, const X* x, const W* w, const float* bias,
                     int64_t t, int64_t n, int64_t k) {
  __shared__ float xs[kTile][kTile + 1], ws[kTile][kTile + 1];
  const int64_t t0 = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t n0 = static_cast<int64_t>(blockIdx.x) * kTile;
  const int column = threadIdx.x, first = threadIdx.y;
  float sum[kTile / kRows] = {};
  for (int64_t k0 = 0; k0 < k; k0 += kTile) {
#pragma unroll
    for (int row = first; row < kTile; row += kRows) {
      const bool inside = k0 + column < k;
      xs[row][column] = inside && t0 + row < t ? ToFloat(x[(t0 + row) * k + k0 + column]) : 0.0f;
      ws[row][column] = inside && n0 + row < n ? ToFloat(w[(n0 + row) * k + k0 + column]) : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kTile; ++i) {
#pragma unroll
      for (int r = 0; r < kTile / kRows; ++r) {
        sum[r] = fmaf(xs[first + r * kRows][i], ws[column][i], sum[r]);
      }
    }
    __syncthreads();
  }
  if (n0 + column >= n) return;
#pragma unroll
  for (int r = 0; r < kTile / kRows; ++r) {
    const int64_t row = t0 + first + r * kRows;
    if (row >= t) continue;
    const float value = bias == nullptr ? sum[r] : sum[r] + bias[n0 + column];
    FromFloat(value, out + row * out_stride + n0 + column);
  }
}

template <typename X, typename W, typename Out>
void Launch(const Stream& stream, const SimpleGemmArgs& args) {
  const dim3 grid(static_cast<unsigned>(CeilDiv<int64_t>(args.n, kTile)),
                  static_cast<unsigned>(CeilDiv<int64_t>(args.t, kTile)));
  SimpleGemmKernel<<<grid, dim3(kTile, kRows), 0, static_cast<cudaStream_t>(stream.handle)>>>(
      static_cast<Out*>(args.out), args.out_stride, static_cast<const X*>(args.x),
      static_cast<const W*>(args.w), args.bias, args.t, args.n, args.k);
}

template <typename X, typename W>
void LaunchTo(const Stream& stream, const SimpleGemmArgs& args) {
  if (args.out_dtype == DType::kF32) return Launch<X, W, float>(stream, args);
  CHECK(args.out_dtype == DType::kBF16) << Info(args.out_dtype).name;
  Launch<X, W, __nv_bfloat16>(stream, args);
}

template <typename X>
void LaunchFrom(const Stream& stream, const SimpleGemmArgs& args) {
  if (args.w_dtype == DType::kF32) return LaunchTo<X, float>(stream, args);
  CHECK(args.w_dtype == DType::kBF16) << Info(args.w_dtype).name;
  LaunchTo<X, __nv_bfloat16>(stream, args);
}

}  // namespace

void SimpleGemm(Stream stream, const SimpleGemmArgs& args) {
  if (args.t == 0 || args.n == 0) return;
  if (args.x_dtype == DType::kF32) {
    LaunchFrom<float>(stream, args);
  } else {
    CHECK(args.x_dtype == DType::kBF16) << Info(args.x_dtype).name;
    LaunchFrom<__nv_bfloat16>(stream, args);
  }
  CUDA_CHECK_LAUNCH(stream, "simple_gemm", args.t, args.n, args.k);
}

}  // namespace hayate::ops::sm90
