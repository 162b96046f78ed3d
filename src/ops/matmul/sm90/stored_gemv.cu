// Computes  out[t, n] = Σ_k x[t, k] · weight(n, k) + bias[n], weights decoded to fp32 in registers
// Grid      a block per kRows rows of W; its warps share the columns in turns of 256, a lane has 8
//           neighbours of each row, which share a scale
// Order     a lane's columns in order, lanes by halving, warps in order: depends on nothing but K
// Traffic   N · K · bits / 8 once; x from the first-level cache
// Bound     loads of single bytes: one a weight, so about 7e12 weights a second

#include "ops/matmul/sm90/stored_gemv.h"

#include <cuda_bf16.h>

#include "base/align.h"
#include "base/check.h"
#include "ops/detail/sm90/eight.cuh"
#include "ops/matmul/sm90/stored_eight.cuh"
#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int kWarps = 8;
constexpr int kRows = 4;
constexpr int kTurn = 32 * 8;  // columns of a warp at a time

template <DType kType, int kTokens>
__global__ void __launch_bounds__(kWarps * 32)
    StoredGemvKernel(const __grid_constant__ StoredGemvArgs args, int64_t row_bytes) {
  __shared__ float partial[kWarps][kRows * kTokens];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t row0 = static_cast<int64_t>(blockIdx.x) * kRows;
  const auto* x = static_cast<const __nv_bfloat16*>(args.x);
  float sum[kRows][kTokens] = {};
  for (int64_t column = warp * kTurn + lane * 8; column < args.k; column += kWarps * kTurn) {
    Eight w[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int64_t row = min(row0 + r, args.n - 1);
      w[r] = LoadStored<kType>(static_cast<const uint8_t*>(args.w) + row * row_bytes, column / 8);
    }
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      if (t >= args.t) break;
      const Eight values = LoadEight(x + t * args.k + column);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
#pragma unroll
        for (int i = 0; i < 8; ++i) sum[r][t] = fmaf(values.v[i], w[r].v[i], sum[r][t]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float total = WarpSum(sum[r][t]);
      if (lane == 0) partial[warp][r * kTokens + t] = total;
    }
  }
  __syncthreads();
  const int r = threadIdx.x / kTokens, t = threadIdx.x % kTokens;
  if (r >= kRows || t >= args.t || row0 + r >= args.n) return;
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) total += partial[i][threadIdx.x];
  if (args.bias != nullptr) total += args.bias[row0 + r];
  const int64_t at = t * args.out_stride + row0 + r;
  if (args.out_dtype == DType::kF32) {
    static_cast<float*>(args.out)[at] = total;
  } else {
    static_cast<__nv_bfloat16*>(args.out)[at] = __float2bfloat16_rn(total);
  }
}

template <DType kType>
void Launch(const Stream& stream, const StoredGemvArgs& args) {
  const auto kernel = args.t == 1   ? StoredGemvKernel<kType, 1>
                      : args.t <= 4 ? StoredGemvKernel<kType, 4>
                                    : StoredGemvKernel<kType, kMaxGemvTokens>;
  kernel<<<static_cast<unsigned>(CeilDiv<int64_t>(args.n, kRows)), kWarps * 32, 0,
           static_cast<cudaStream_t>(stream.handle)>>>(args, RowBytes(kType, args.k));
}

}  // namespace

void StoredGemv(Stream stream, const StoredGemvArgs& args) {
  CHECK_LE(args.t, kMaxGemvTokens);
  if (args.t == 0 || args.n == 0) return;
  const bool known =
      VisitBlockType(args.type, [&](auto tag) { Launch<decltype(tag)::kValue>(stream, args); });
  CHECK(known) << Info(args.type).name;
  CUDA_CHECK_LAUNCH(stream, "stored_gemv", args.t, args.n, args.k);
}

}  // namespace hayate::ops::sm90
