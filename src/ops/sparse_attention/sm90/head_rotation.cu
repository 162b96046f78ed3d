// A block per head of a token. Where only pairs turn, only they are read.

#include "ops/sparse_attention/sm90/head_rotation.h"

#include "base/align.h"
#include "base/check.h"
#include "ops/detail/sm90/launch.cuh"
#include "ops/sparse_attention/sm90/vector.cuh"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 64;

template <typename X>
__global__ void __launch_bounds__(kThreads)
    RotateKernel(const __grid_constant__ HeadRotationArgs args, X* heads, int num_heads,
                 int width) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  extern __shared__ float head[];
  __shared__ float scratch[kThreads / 32];
  const int64_t token = blockIdx.x / static_cast<unsigned>(num_heads);
  X* x = heads + static_cast<int64_t>(blockIdx.x) * width;
  const bool whole = args.rms_eps > 0.0f || args.hadamard || args.simulate_fp4;
  const int turned = width - args.rotary, first = whole ? 0 : turned;
  for (int f = first + static_cast<int>(threadIdx.x); f < width; f += kThreads) {
    head[f] = ToFloat(x[f]);
  }
  __syncthreads();
  if (args.rms_eps > 0.0f) NormVector(head, width, args.rms_eps, nullptr, scratch);
  if (args.rotary > 0) {
    TurnPairs(head + turned, args.cos_sin + token * args.rotary, args.rotary,
              args.direction == Rotation::kInverse);
  }
  if (args.hadamard) HadamardVector(head, width);
  if (args.simulate_fp4) SimulateFp4Vector(head, width);
  for (int f = first + static_cast<int>(threadIdx.x); f < width; f += kThreads) {
    FromFloat(head[f], x + f);
  }
}

template <typename X>
void Launch(const Stream& stream, const HeadRotationArgs& args) {
  const int64_t heads = args.x.shape[1], width = args.x.shape[2];
  LaunchDependent(stream, RotateKernel<X>, static_cast<unsigned>(args.x.shape[0] * heads), kThreads,
                  static_cast<size_t>(width) * sizeof(float), args,
                  reinterpret_cast<X*>(args.x.data), static_cast<int>(heads),
                  static_cast<int>(width));
}

// A thread per angle.
__global__ void __launch_bounds__(kThreads)
    RopeKernel(float* out, const int32_t* positions, const float* inv_freq, int64_t count,
               int half) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t i = at / half;
  const int f = static_cast<int>(at % half);
  if (i >= count) return;
  const float angle = __fmul_rn(static_cast<float>(positions[i]), inv_freq[f]);
  double sine, cosine;
  sincos(static_cast<double>(angle), &sine, &cosine);
  out[i * 2 * half + f] = static_cast<float>(cosine);
  out[i * 2 * half + half + f] = static_cast<float>(sine);
}

}  // namespace

void SinglePrecisionRopeRows(Stream stream, const SinglePrecisionRopeArgs& args) {
  const int64_t count = args.out.rows(), half = args.out.cols() / 2;
  if (count * half == 0) return;
  LaunchDependent(
      stream, RopeKernel, static_cast<unsigned>(CeilDiv<int64_t>(count * half, kThreads)), kThreads,
      0, args.out.as<float>(), args.positions, args.inv_freq, count, static_cast<int>(half));
  CUDA_CHECK_LAUNCH(stream, "single_precision_rope_rows", count, half);
}

void RotateHeads(Stream stream, const HeadRotationArgs& args) {
  if (args.x.shape.num_elements() == 0) return;
  if (args.x.dtype == DType::kBF16) {
    Launch<__nv_bfloat16>(stream, args);
  } else {
    CHECK(args.x.dtype == DType::kF32) << Info(args.x.dtype).name;
    Launch<float>(stream, args);
  }
  CUDA_CHECK_LAUNCH(stream, "rotate_heads", args.x.shape[0], args.x.shape[1], args.x.shape[2]);
}

}  // namespace hayate::ops::sm90
