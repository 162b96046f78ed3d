// A warp per row, read three times from the first-level cache: rows are index keys, short ones.
// Order: a lane's elements in turns of 32, lanes by halving.

#include "ops/norm/sm90/layer_norm.h"

#include "base/align.h"
#include "base/check.h"
#include "ops/detail/sm90/eight.cuh"
#include "ops/detail/sm90/launch.cuh"

namespace hayate::ops::sm90 {
namespace {

constexpr int kWarps = 4;

template <typename T>
__global__ void __launch_bounds__(kWarps * 32)
    NormKernel(T* out, const T* x, const float* weight, const float* bias, float eps, int64_t rows,
               int64_t width) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int lane = threadIdx.x % 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= rows) return;
  x += row * width;
  out += row * width;
  const auto count = static_cast<float>(width);
  float sum = 0.0f;
  for (int64_t i = lane; i < width; i += 32) sum += ToFloat(x[i]);
  const float mean = WarpSum(sum) / count;
  float squares = 0.0f;
  for (int64_t i = lane; i < width; i += 32) {
    const float difference = ToFloat(x[i]) - mean;
    squares = fmaf(difference, difference, squares);
  }
  const float scale = 1.0f / sqrtf(WarpSum(squares) / count + eps);
  for (int64_t i = lane; i < width; i += 32) {
    FromFloat((ToFloat(x[i]) - mean) * scale * weight[i] + bias[i], out + i);
  }
}

template <typename T>
void Launch(const Stream& stream, const LayerNormArgs& args) {
  const int64_t rows = args.x.rows();
  LaunchDependent(stream, NormKernel<T>, static_cast<unsigned>(CeilDiv<int64_t>(rows, kWarps)),
                  kWarps * 32, 0, reinterpret_cast<T*>(args.out.data),
                  reinterpret_cast<const T*>(args.x.data), args.weight, args.bias, args.eps, rows,
                  args.x.cols());
}

}  // namespace

void LayerNorm(Stream stream, const LayerNormArgs& args) {
  DCHECK(args.out.dtype == args.x.dtype);
  if (args.x.rows() == 0) return;
  if (args.x.dtype == DType::kBF16) {
    Launch<__nv_bfloat16>(stream, args);
  } else {
    CHECK(args.x.dtype == DType::kF32) << Info(args.x.dtype).name;
    Launch<float>(stream, args);
  }
  CUDA_CHECK_LAUNCH(stream, "layer_norm", args.x.rows(), args.x.cols());
}

}  // namespace hayate::ops::sm90
