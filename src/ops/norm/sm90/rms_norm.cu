// RMS norm of rows, with the residual sum before it and the fp8 quantisation after it.
//
// Grid: a block per row. The block's size depends on H alone, so a row's sum has one order whatever
// T is. A thread keeps its chunks of 8 columns in registers: every byte is read and written once.
// Traffic of AddRmsNorm, bf16 activations: 12 bytes an element (residual in and out, x in, out).

#include "ops/norm/sm90/rms_norm.h"

#include "base/align.h"
#include "ops/detail/sm90/eight.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "ops/quantize/sm90/quantize_row.cuh"

namespace hayate::ops::sm90 {
namespace {

constexpr int kMaxThreads = 512;
constexpr int kMaxChunks = 4;
constexpr int kPlainThreads = 256;

template <typename X, typename Out>
struct Params {
  Out* out;         // [T, H] or null
  float* residual;  // [T, H], only where the kernel adds
  const X* x;       // [T, H]
  const float* weight;
  float eps;
  int columns;  // H
  Fp8Rows fp8;
};

// Σ over the threads of the block, in an order that depends on its size alone.
__device__ __forceinline__ float BlockSum(float x) {
  __shared__ float sums[32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int num_warps = (blockDim.x + 31) / 32;
  x = WarpSum(x);
  if (lane == 0) sums[warp] = x;
  __syncthreads();
  return WarpSum(lane < num_warps ? sums[lane] : 0.0f);
}

// A row in registers: kChunks chunks a thread, chunk c = i · threads + thread.
template <typename X, typename Out, bool kAdd, int kChunks>
__global__ void __launch_bounds__(kMaxThreads)
    RowInRegisters(const __grid_constant__ Params<X, Out> p) {
  AllowNextLaunch();
  const int64_t row = blockIdx.x;
  const int chunks = p.columns / 8;
  const int64_t begin = row * p.columns;
  // No launch writes weights; from memory they take as long as the wait.
  Eight weights[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int chunk = i * blockDim.x + threadIdx.x;
    if (chunk < chunks) weights[i] = LoadEight(p.weight + chunk * 8);
  }
  // Nor does the launch right before this one write the residual, and it waits before it allows.
  Eight residual[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int chunk = i * blockDim.x + threadIdx.x;
    if (kAdd && chunk < chunks) residual[i] = LoadEight(p.residual + begin + chunk * 8);
  }
  WaitForPriorLaunches();
  Eight values[kChunks];
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int chunk = i * blockDim.x + threadIdx.x;
    if (chunk >= chunks) continue;
    values[i] = LoadEight(p.x + begin + chunk * 8);
    if constexpr (kAdd) {
#pragma unroll
      for (int j = 0; j < 8; ++j) values[i].v[j] += residual[i].v[j];
    }
  }
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int chunk = i * blockDim.x + threadIdx.x;
    if (chunk >= chunks) continue;
    if constexpr (kAdd) StoreEight(p.residual + begin + chunk * 8, values[i]);
#pragma unroll
    for (int j = 0; j < 8; ++j) squares += values[i].v[j] * values[i].v[j];
  }
  const float scale = 1.0f / sqrtf(BlockSum(squares) / static_cast<float>(p.columns) + p.eps);
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    const int chunk = i * blockDim.x + threadIdx.x;
    if (chunk >= chunks) continue;
#pragma unroll
    for (int j = 0; j < 8; ++j) values[i].v[j] *= scale * weights[i].v[j];
    if (p.out != nullptr) StoreEight(p.out + begin + chunk * 8, values[i]);
  }
  if (p.fp8.codes != nullptr) QuantizeRow<kChunks>(p.fp8, row, p.columns, 0, values);
}

// Any width and alignment, no fp8.
template <typename X, typename Out, bool kAdd>
__global__ void __launch_bounds__(kPlainThreads)
    RowByElement(const __grid_constant__ Params<X, Out> p) {
  AllowNextLaunch();
  WaitForPriorLaunches();
  const int64_t begin = int64_t{blockIdx.x} * p.columns;
  const auto value = [&](int i) {
    if constexpr (kAdd) return p.residual[begin + i];
    return ToFloat(p.x[begin + i]);
  };
  float squares = 0.0f;
  for (int i = threadIdx.x; i < p.columns; i += kPlainThreads) {
    if constexpr (kAdd) p.residual[begin + i] += ToFloat(p.x[begin + i]);
    squares += value(i) * value(i);
  }
  const float scale = 1.0f / sqrtf(BlockSum(squares) / static_cast<float>(p.columns) + p.eps);
  for (int i = threadIdx.x; i < p.columns; i += kPlainThreads) {
    FromFloat(value(i) * (scale * p.weight[i]), p.out + begin + i);
  }
}

bool Aligned(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer) % 16 == 0; }

template <bool kAdd, typename X, typename Out>
void Launch(const Stream& stream, int64_t rows, const Params<X, Out>& p) {
  if (rows == 0) return;
  const dim3 grid(static_cast<unsigned>(rows));
  const int chunks = p.columns / 8;
  const int per_thread = CeilDiv(chunks, kMaxThreads);
  const bool wide = p.columns % 8 == 0 && per_thread <= kMaxChunks && Aligned(p.x) &&
                    Aligned(p.out) && Aligned(p.residual) && Aligned(p.weight);
  if (!wide) {
    CHECK(p.fp8.codes == nullptr) << "fp8 rows of " << p.columns << " columns";
    LaunchDependent(stream, RowByElement<X, Out, kAdd>, grid, kPlainThreads, 0, p);
  } else {
    CheckFp8Rows(p.fp8, p.columns);
    const dim3 threads(static_cast<unsigned>(AlignUp(CeilDiv(chunks, per_thread), 32)));
    const auto kernel = per_thread == 1   ? RowInRegisters<X, Out, kAdd, 1>
                        : per_thread == 2 ? RowInRegisters<X, Out, kAdd, 2>
                                          : RowInRegisters<X, Out, kAdd, kMaxChunks>;
    LaunchDependent(stream, kernel, grid, threads, 0, p);
  }
  CUDA_CHECK_LAUNCH(stream, kAdd ? "add_rms_norm" : "rms_norm", rows, p.columns);
}

template <bool kAdd, typename X, typename Out>
void LaunchTyped(const Stream& stream, const TensorView& residual, const ConstTensorView& x,
                 const TensorView& out, const float* weight, float eps, const Fp8Rows& fp8) {
  Launch<kAdd, X, Out>(stream, x.rows(),
                       {.out = reinterpret_cast<Out*>(out.data),
                        .residual = reinterpret_cast<float*>(residual.data),
                        .x = reinterpret_cast<const X*>(x.data),
                        .weight = weight,
                        .eps = eps,
                        .columns = static_cast<int>(x.cols()),
                        .fp8 = fp8});
}

template <bool kAdd>
void Dispatch(const Stream& stream, const TensorView& residual, const ConstTensorView& x,
              const TensorView& out, const float* weight, float eps, const Fp8Rows& fp8) {
  const auto launch = [&](auto kernel) { kernel(stream, residual, x, out, weight, eps, fp8); };
  const bool bf16_out = out.data == nullptr || out.dtype == DType::kBF16;
  CHECK(bf16_out || out.dtype == DType::kF32) << Info(out.dtype).name;
  if (x.dtype == DType::kBF16) {
    return launch(bf16_out ? LaunchTyped<kAdd, __nv_bfloat16, __nv_bfloat16>
                           : LaunchTyped<kAdd, __nv_bfloat16, float>);
  }
  CHECK(x.dtype == DType::kF32) << Info(x.dtype).name;
  launch(bf16_out ? LaunchTyped<kAdd, float, __nv_bfloat16> : LaunchTyped<kAdd, float, float>);
}

}  // namespace

void RmsNorm(Stream stream, const RmsNormArgs& args) {
  Dispatch<false>(stream, {}, args.x, args.out, args.weight, args.eps, args.fp8);
}

void AddRmsNorm(Stream stream, const AddRmsNormArgs& args) {
  CHECK(args.residual.dtype == DType::kF32) << Info(args.residual.dtype).name;
  Dispatch<true>(stream, args.residual, args.x, args.out, args.weight, args.eps, args.fp8);
}

}  // namespace hayate::ops::sm90
