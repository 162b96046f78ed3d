// Hyper-connections in two launches: partial products of fn with a token's streams, split along the
// joined width so that one token fills the device; then a block per token adds them up, makes the
// coefficients and mixes the streams.
// Order   splits in order, a thread's elements in order, lanes and warps by halving and in order:
//         depends on the width alone
// Bound   fn's bytes for few tokens, from the second-level cache for many

#include "ops/hyper_connection/sm90/hyper_connection.h"

#include "base/align.h"
#include "base/check.h"
#include "ops/detail/sm90/eight.cuh"
#include "ops/detail/sm90/launch.cuh"

namespace hayate::ops::sm90 {
namespace {

constexpr int S = kHyperStreams;
constexpr unsigned kAll = 0xFFFFFFFFu;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kSplits = 16;
constexpr int kTokens = 4;  // of a block of products

// partials[t, split, i] = fn_i · x_t over the split's part of the width; i = kMixes: x_t · x_t.
template <int kMixes>
__global__ void __launch_bounds__(kThreads)
    MixKernel(float* partials, const float* streams, const float* fn, int64_t tokens,
              int64_t width) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  __shared__ float parts[kWarps];
  const int64_t share = (width + kSplits - 1) / kSplits;
  const int64_t begin = blockIdx.y * share, end = min(begin + share, width);
  const int64_t t0 = static_cast<int64_t>(blockIdx.x) * kTokens;
  float sums[kTokens][kMixes + 1] = {};
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    float x[kTokens];
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      x[t] = streams[min(t0 + t, tokens - 1) * width + i];
      sums[t][kMixes] = fmaf(x[t], x[t], sums[t][kMixes]);
    }
#pragma unroll
    for (int m = 0; m < kMixes; ++m) {
      const float w = fn[m * width + i];
#pragma unroll
      for (int t = 0; t < kTokens; ++t) sums[t][m] = fmaf(w, x[t], sums[t][m]);
    }
  }
#pragma unroll
  for (int t = 0; t < kTokens; ++t) {
#pragma unroll
    for (int m = 0; m <= kMixes; ++m) {
      const float sum = WarpSum(sums[t][m]);
      if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
      __syncthreads();
      if (threadIdx.x == 0 && t0 + t < tokens) {
        float total = 0.0f;
        for (int w = 0; w < kWarps; ++w) total += parts[w];
        partials[((t0 + t) * kSplits + blockIdx.y) * (kMixes + 1) + m] = total;
      }
      __syncthreads();
    }
  }
}

__device__ __forceinline__ float Sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// Σ over the lanes that differ in the two bits of `mask`: rows of C (1, 2) or columns (4, 8).
__device__ __forceinline__ float SumOfFour(float x, int low, int high) {
  x += __shfl_xor_sync(kAll, x, low);
  return x + __shfl_xor_sync(kAll, x, high);
}

// By a warp: lane S·j + k has C[j, k]; lanes from 16 on repeat lanes 0 … 15.
__device__ float Sinkhorn(float c, float eps, int iterations) {
  float most = fmaxf(c, __shfl_xor_sync(kAll, c, 1));
  most = fmaxf(most, __shfl_xor_sync(kAll, most, 2));
  c = expf(c - most);
  c = c / SumOfFour(c, 1, 2) + eps;
  for (int i = 0; i < iterations; ++i) {
    if (i > 0) c /= SumOfFour(c, 1, 2) + eps;
    c /= SumOfFour(c, 4, 8) + eps;
  }
  return c;
}

struct MixWeights {
  const float* base;
  const float* scale;
  float norm_eps, eps;
  int32_t iterations;
};

// Finishes a token's coefficients [kMixes] by the block's first warp.
template <int kMixes>
__device__ void FinishMixes(const float* partials, const MixWeights& weights, int64_t width,
                            float* mixes) {
  if (threadIdx.x >= 32) return;
  const int lane = threadIdx.x;
  float total = 0.0f;
  if (lane <= kMixes) {
    for (int s = 0; s < kSplits; ++s) total += partials[s * (kMixes + 1) + lane];
  }
  const float squares = __shfl_sync(kAll, total, kMixes);
  const float inverse = 1.0f / sqrtf(squares / static_cast<float>(width) + weights.norm_eps);
  const int kind = lane < kHyperPost ? 0 : lane < kHyperMatrix ? 1 : 2;
  float mix = 0.0f;
  if (lane < kMixes) mix = total * inverse * weights.scale[kind] + weights.base[lane];
  if (kind == 0) mixes[lane] = Sigmoid(mix) + weights.eps;
  if constexpr (kMixes == kHyperMixes) {
    if (kind == 1) mixes[lane] = 2.0f * Sigmoid(mix);
    const float c =
        Sinkhorn(__shfl_sync(kAll, mix, kHyperMatrix + lane % 16), weights.eps, weights.iterations);
    if (lane < 16) mixes[kHyperMatrix + lane] = c;
  }
}

// Σ over the block; every thread gets it.
__device__ float BlockSum(float x) {
  __shared__ float parts[kWarps];
  x = WarpSum(x);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  float sum = 0.0f;
  for (int w = 0; w < kWarps; ++w) sum += parts[w];
  return sum;
}

struct CollapseParams {
  const float* streams;  // [T, S, H]
  const float* norm;     // [H] or null
  const float* pre;      // or null: of the mixes
  int64_t pre_stride, width;
  float eps;
};

// A block per token. kMixes 0: no mixes, `pre` is given.
template <int kMixes, typename Out>
__global__ void __launch_bounds__(kThreads)
    CollapseKernel(Out* out, float* coefficients, const float* partials,
                   const __grid_constant__ MixWeights weights,
                   const __grid_constant__ CollapseParams p) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  extern __shared__ float sums[];  // [H]
  __shared__ float mixes[kHyperMixes];
  const int64_t t = blockIdx.x;
  if constexpr (kMixes > 0) {
    FinishMixes<kMixes>(partials + t * kSplits * (kMixes + 1), weights, S * p.width, mixes);
    __syncthreads();
    if (coefficients != nullptr && threadIdx.x < kMixes) {
      coefficients[t * kMixes + threadIdx.x] = mixes[threadIdx.x];
    }
  }
  float pre[S];
#pragma unroll
  for (int j = 0; j < S; ++j) {
    pre[j] = p.pre != nullptr ? p.pre[t * p.pre_stride + j] : mixes[j];
  }
  const float* streams = p.streams + t * S * p.width;
  float squares = 0.0f;
  for (int64_t i = threadIdx.x; i < p.width; i += kThreads) {
    const float sum = pre[0] * streams[i] + pre[1] * streams[p.width + i] +
                      pre[2] * streams[2 * p.width + i] + pre[3] * streams[3 * p.width + i];
    sums[i] = sum;
    squares = fmaf(sum, sum, squares);
  }
  const float mean = BlockSum(squares) / static_cast<float>(p.width);
  const float inverse = p.norm == nullptr ? 1.0f : 1.0f / sqrtf(mean + p.eps);
  for (int64_t i = threadIdx.x; i < p.width; i += kThreads) {
    FromFloat(sums[i] * inverse * (p.norm == nullptr ? 1.0f : p.norm[i]), out + t * p.width + i);
  }
}

template <typename Y>
__global__ void __launch_bounds__(kThreads)
    LeaveKernel(float* streams, const Y* y, const float* coefficients, int64_t width) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int64_t t = blockIdx.x;
  const int64_t i = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (i >= width) return;
  const float* post = coefficients + t * kHyperMixes + kHyperPost;
  const float* c = coefficients + t * kHyperMixes + kHyperMatrix;
  float* h = streams + t * S * width + i;
  float before[S];
#pragma unroll
  for (int j = 0; j < S; ++j) before[j] = h[j * width];
  const float value = ToFloat(y[t * width + i]);
#pragma unroll
  for (int k = 0; k < S; ++k) {
    h[k * width] = post[k] * value + (c[k] * before[0] + c[S + k] * before[1] +
                                      c[2 * S + k] * before[2] + c[3 * S + k] * before[3]);
  }
}

template <typename X>
__global__ void __launch_bounds__(kThreads)
    ExpandKernel(float* streams, const X* x, int64_t width) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int64_t t = blockIdx.x;
  const int64_t i = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (i >= width) return;
  const float value = ToFloat(x[t * width + i]);
#pragma unroll
  for (int j = 0; j < S; ++j) streams[(t * S + j) * width + i] = value;
}

__global__ void __launch_bounds__(kThreads)
    AddKernel(float* streams, const float* x, int64_t width) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int64_t t = blockIdx.x;
  const int64_t i = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (i >= width) return;
  const float value = x[t * width + i];
#pragma unroll
  for (int j = 0; j < S; ++j) streams[(t * S + j) * width + i] += value;
}

__global__ void __launch_bounds__(kThreads)
    MeansKernel(float* out, int64_t row_stride, const float* streams, int64_t width) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int64_t t = blockIdx.x;
  const int64_t i = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  if (i >= width) return;
  float sum = 0.0f;
#pragma unroll
  for (int j = 0; j < S; ++j) sum += streams[(t * S + j) * width + i];
  out[t * row_stride + i] = sum / static_cast<float>(S);
}

__global__ void __launch_bounds__(kThreads)
    TakeFirstKernel(float* coefficients, int64_t tokens, int64_t columns) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int64_t t = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (t >= tokens) return;
  for (int j = 0; j < S; ++j) coefficients[t * columns + j] = j == 0 ? 1.0f : 0.0f;
}

dim3 ElementGrid(int64_t tokens, int64_t width) {
  return {static_cast<unsigned>(tokens), static_cast<unsigned>(CeilDiv<int64_t>(width, kThreads))};
}

// [T, kSplits, kMixes + 1] of the workspace.
template <int kMixes>
const float* Mixes(const Stream& stream, Workspace& workspace, const ConstTensorView& streams,
                   const HyperConnection& weights) {
  const int64_t tokens = streams.shape[0], width = S * streams.shape[2];
  DCHECK(weights.fn->n == kMixes && weights.fn->k == width);
  float* partials = workspace.TakeArray<float>(tokens * kSplits * (kMixes + 1));
  const dim3 grid(static_cast<unsigned>(CeilDiv<int64_t>(tokens, kTokens)), kSplits);
  LaunchDependent(stream, MixKernel<kMixes>, grid, kThreads, 0, partials, streams.as<float>(),
                  reinterpret_cast<const float*>(weights.fn->storage.data()), tokens, width);
  return partials;
}

template <int kMixes>
void Collapse(const Stream& stream, const TensorView& out, float* coefficients,
              const float* partials, const HyperConnection& weights, const CollapseParams& params) {
  const MixWeights mix = {weights.base, weights.scale, weights.norm_eps, weights.eps,
                          weights.iterations};
  const auto tokens = static_cast<unsigned>(out.shape[0]);
  const size_t shared = static_cast<size_t>(params.width) * sizeof(float);
  if (out.dtype == DType::kBF16) {
    LaunchDependent(stream, CollapseKernel<kMixes, __nv_bfloat16>, tokens, kThreads, shared,
                    reinterpret_cast<__nv_bfloat16*>(out.data), coefficients, partials, mix,
                    params);
  } else {
    CHECK(out.dtype == DType::kF32) << Info(out.dtype).name;
    LaunchDependent(stream, CollapseKernel<kMixes, float>, tokens, kThreads, shared,
                    out.as<float>(), coefficients, partials, mix, params);
  }
  CUDA_CHECK_LAUNCH(stream, "hyper_collapse", out.shape[0], out.shape[1]);
}

}  // namespace

void HyperEnter(Stream stream, Workspace& workspace, const HyperEnterArgs& args) {
  if (args.streams.shape[0] == 0) return;
  const size_t mark = workspace.mark();
  const float* partials = Mixes<kHyperMixes>(stream, workspace, args.streams, args.weights);
  Collapse<kHyperMixes>(stream, args.out, args.coefficients.as<float>(), partials, args.weights,
                        {.streams = args.streams.as<float>(),
                         .norm = args.norm,
                         .pre = args.pre,
                         .pre_stride = args.pre_stride,
                         .width = args.streams.shape[2],
                         .eps = args.weights.norm_eps});
  workspace.ResetTo(mark);
}

void HyperCollapse(Stream stream, Workspace& workspace, const HyperCollapseArgs& args) {
  if (args.streams.shape[0] == 0) return;
  const size_t mark = workspace.mark();
  const CollapseParams params = {.streams = args.streams.as<float>(),
                                 .norm = args.norm,
                                 .pre = args.pre,
                                 .pre_stride = args.pre_stride,
                                 .width = args.streams.shape[2],
                                 .eps = args.norm_eps};
  if (args.pre != nullptr) {
    Collapse<0>(stream, args.out, nullptr, nullptr, args.weights, params);
  } else {
    const float* partials = Mixes<S>(stream, workspace, args.streams, args.weights);
    Collapse<S>(stream, args.out, nullptr, partials, args.weights, params);
  }
  workspace.ResetTo(mark);
}

void HyperLeave(Stream stream, const HyperLeaveArgs& args) {
  const int64_t tokens = args.streams.shape[0], width = args.streams.shape[2];
  if (tokens == 0) return;
  float* streams = args.streams.as<float>();
  const float* coefficients = args.coefficients.as<float>();
  if (args.y.dtype == DType::kBF16) {
    LaunchDependent(stream, LeaveKernel<__nv_bfloat16>, ElementGrid(tokens, width), kThreads, 0,
                    streams, reinterpret_cast<const __nv_bfloat16*>(args.y.data), coefficients,
                    width);
  } else {
    CHECK(args.y.dtype == DType::kF32) << Info(args.y.dtype).name;
    LaunchDependent(stream, LeaveKernel<float>, ElementGrid(tokens, width), kThreads, 0, streams,
                    args.y.as<float>(), coefficients, width);
  }
  CUDA_CHECK_LAUNCH(stream, "hyper_leave", tokens, width);
}

void HyperExpand(Stream stream, TensorView streams, ConstTensorView x) {
  const int64_t tokens = x.shape[0], width = x.shape[1];
  if (tokens == 0) return;
  if (x.dtype == DType::kBF16) {
    LaunchDependent(stream, ExpandKernel<__nv_bfloat16>, ElementGrid(tokens, width), kThreads, 0,
                    streams.as<float>(), reinterpret_cast<const __nv_bfloat16*>(x.data), width);
  } else {
    CHECK(x.dtype == DType::kF32) << Info(x.dtype).name;
    LaunchDependent(stream, ExpandKernel<float>, ElementGrid(tokens, width), kThreads, 0,
                    streams.as<float>(), x.as<float>(), width);
  }
  CUDA_CHECK_LAUNCH(stream, "hyper_expand", tokens, width);
}

void HyperAdd(Stream stream, TensorView streams, ConstTensorView x) {
  const int64_t tokens = x.shape[0], width = x.shape[1];
  if (tokens == 0) return;
  LaunchDependent(stream, AddKernel, ElementGrid(tokens, width), kThreads, 0, streams.as<float>(),
                  x.as<float>(), width);
  CUDA_CHECK_LAUNCH(stream, "hyper_add", tokens, width);
}

void HyperMeans(Stream stream, TensorView out, int64_t row_stride, ConstTensorView streams) {
  const int64_t tokens = streams.shape[0], width = streams.shape[2];
  if (tokens == 0) return;
  LaunchDependent(stream, MeansKernel, ElementGrid(tokens, width), kThreads, 0, out.as<float>(),
                  row_stride, streams.as<float>(), width);
  CUDA_CHECK_LAUNCH(stream, "hyper_means", tokens, width);
}

void HyperTakeFirst(Stream stream, TensorView coefficients) {
  const int64_t tokens = coefficients.rows();
  if (tokens == 0) return;
  LaunchDependent(stream, TakeFirstKernel,
                  static_cast<unsigned>(CeilDiv<int64_t>(tokens, kThreads)), kThreads, 0,
                  coefficients.as<float>(), tokens, coefficients.cols());
  CUDA_CHECK_LAUNCH(stream, "hyper_take_first", tokens);
}

int64_t HyperWorkspaceBytes(int64_t max_tokens) {
  return max_tokens * kSplits * (kHyperMixes + 1) * static_cast<int64_t>(sizeof(float)) +
         static_cast<int64_t>(Workspace::kAlignment);
}

}  // namespace hayate::ops::sm90
