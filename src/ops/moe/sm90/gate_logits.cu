// Computes  logits[t, e] = Σ_k x[t, k] · gate[e, k] + bias[e], in fp32
// Grid      a warp per kTokens tokens and 1 or kExperts experts; its lanes share the columns, four
//           neighbours at a time
// Order     a lane's columns in order, lanes by halving: depends on nothing but K
// Bound     the gate's bytes for few tokens, the first-level cache for many

#include "base/align.h"
#include "base/check.h"
#include "ops/detail/sm90/eight.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "ops/moe/sm90/router.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int kWarps = 4;
constexpr int kTokens = 4;
constexpr int kExperts = 4;  // of a warp, where there are tokens enough
constexpr int64_t kManyTokens = 32;

__device__ __forceinline__ float4 LoadFour(const float* from) {
  return *reinterpret_cast<const float4*>(from);
}
__device__ __forceinline__ float4 LoadFour(const __nv_bfloat16* from) {
  const uint2 bits = *reinterpret_cast<const uint2*>(from);
  return {__uint_as_float(bits.x << 16), __uint_as_float(bits.x & 0xFFFF0000u),
          __uint_as_float(bits.y << 16), __uint_as_float(bits.y & 0xFFFF0000u)};
}

template <typename X, int kE, bool kFours>
__global__ void __launch_bounds__(kWarps * 32)
    GateKernel(float* logits, const X* x, const float* gate, const float* bias, int64_t tokens,
               int64_t experts, int64_t k) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int lane = threadIdx.x % 32;
  const int64_t e0 = (static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32) * kE;
  const int64_t t0 = static_cast<int64_t>(blockIdx.y) * kTokens;
  if (e0 >= experts) return;
  const X* xs[kTokens];
  const float* ws[kE];
#pragma unroll
  for (int t = 0; t < kTokens; ++t) xs[t] = x + min(t0 + t, tokens - 1) * k;
#pragma unroll
  for (int e = 0; e < kE; ++e) ws[e] = gate + min(e0 + e, experts - 1) * k;
  float sums[kE][kTokens] = {};
  if constexpr (kFours) {
#pragma unroll 2
    for (int64_t i = lane * 4; i < k; i += 32 * 4) {
      float4 w[kE];
#pragma unroll
      for (int e = 0; e < kE; ++e) w[e] = LoadFour(ws[e] + i);
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
        const float4 v = LoadFour(xs[t] + i);
#pragma unroll
        for (int e = 0; e < kE; ++e) {
          float& sum = sums[e][t];
          sum = fmaf(v.x, w[e].x, sum);
          sum = fmaf(v.y, w[e].y, sum);
          sum = fmaf(v.z, w[e].z, sum);
          sum = fmaf(v.w, w[e].w, sum);
        }
      }
    }
  } else {
    for (int64_t i = lane; i < k; i += 32) {
#pragma unroll
      for (int t = 0; t < kTokens; ++t) {
#pragma unroll
        for (int e = 0; e < kE; ++e) sums[e][t] = fmaf(ToFloat(xs[t][i]), ws[e][i], sums[e][t]);
      }
    }
  }
#pragma unroll
  for (int e = 0; e < kE; ++e) {
#pragma unroll
    for (int t = 0; t < kTokens; ++t) {
      const float sum = WarpSum(sums[e][t]);
      if (lane != e * kTokens + t || e0 + e >= experts || t0 + t >= tokens) continue;
      logits[(t0 + t) * experts + e0 + e] = bias == nullptr ? sum : sum + bias[e0 + e];
    }
  }
}

template <typename X, int kE, bool kFours>
void Launch(const Stream& stream, const GateLogitsArgs& args) {
  const dim3 grid(static_cast<unsigned>(CeilDiv<int64_t>(args.num_experts, kE * kWarps)),
                  static_cast<unsigned>(CeilDiv<int64_t>(args.x.rows(), kTokens)));
  LaunchDependent(stream, GateKernel<X, kE, kFours>, grid, kWarps * 32, 0, args.logits,
                  reinterpret_cast<const X*>(args.x.data), args.gate, args.bias, args.x.rows(),
                  args.num_experts, args.x.cols());
}

template <typename X>
void LaunchFor(const Stream& stream, const GateLogitsArgs& args) {
  const bool many = args.x.rows() >= kManyTokens;
  if (args.x.cols() % 4 != 0) return Launch<X, 1, false>(stream, args);
  if (many) return Launch<X, kExperts, true>(stream, args);
  Launch<X, 1, true>(stream, args);
}

}  // namespace

void GateLogits(Stream stream, const GateLogitsArgs& args) {
  if (args.x.rows() == 0) return;
  if (args.x.dtype == DType::kBF16) {
    LaunchFor<__nv_bfloat16>(stream, args);
  } else {
    CHECK(args.x.dtype == DType::kF32) << Info(args.x.dtype).name;
    LaunchFor<float>(stream, args);
  }
  CUDA_CHECK_LAUNCH(stream, "gate_logits", args.x.rows(), args.num_experts, args.x.cols());
}

}  // namespace hayate::ops::sm90
