// A block per head of a token.

#include "base/check.h"
#include "ops/detail/sm90/eight.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "ops/latent_attention/sm90/latent_attention.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 64;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    CopyKernel(T* to, int64_t to_width, const T* from, int64_t from_width, int count) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int64_t row = blockIdx.x;
  for (int i = threadIdx.x; i < count; i += kThreads) {
    to[row * to_width + i] = from[row * from_width + i];
  }
}

template <typename T>
void Launch(const Stream& stream, const CopyFeaturesArgs& args) {
  LaunchDependent(stream, CopyKernel<T>, static_cast<unsigned>(args.to.shape[0] * args.to.shape[1]),
                  kThreads, 0, reinterpret_cast<T*>(args.to.data) + args.to_begin, args.to.shape[2],
                  reinterpret_cast<const T*>(args.from.data) + args.from_begin, args.from.shape[2],
                  static_cast<int>(args.count));
}

}  // namespace

void CopyFeatures(Stream stream, const CopyFeaturesArgs& args) {
  if (args.to.shape.num_elements() == 0) return;
  if (args.to.dtype == DType::kBF16) {
    Launch<__nv_bfloat16>(stream, args);
  } else {
    CHECK(args.to.dtype == DType::kF32) << Info(args.to.dtype).name;
    Launch<float>(stream, args);
  }
  CUDA_CHECK_LAUNCH(stream, "copy_features", args.to.shape[0], args.to.shape[1], args.count);
}

}  // namespace hayate::ops::sm90
