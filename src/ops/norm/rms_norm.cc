#include "ops/norm/rms_norm.h"

#include "base/check.h"
#include "ops/norm/detail/kernels.h"
#include "ops/norm/sm90/rms_norm.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {
namespace {

const NormKernels& Chosen() {
  static const NormKernels& chosen = []() -> const NormKernels& {
    for (const NormKernels& kernels : AllNormKernels()) {
      if (kernels.runs_on(DetectCpuFeatures())) return kernels;
    }
    CHECK(false) << "no kernel runs anywhere";
    __builtin_unreachable();
  }();
  return chosen;
}

}  // namespace

void RmsNorm(Stream stream, const RmsNormArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::RmsNorm(stream, args);
  }
  DCHECK(args.x.shape == args.out.shape && !args.fp8.wanted());
  const int64_t width = args.x.cols();
  const int64_t rows = args.x.rows();
  const NormKernels& kernels = Chosen();
  for (int64_t t = 0; t < rows; ++t) {
    kernels.norm(args.out.as<float>() + t * width, args.x.as<float>() + t * width, args.weight,
                 args.eps, width);
  }
}

void AddRmsNorm(Stream stream, const AddRmsNormArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::AddRmsNorm(stream, args);
  }
  DCHECK(args.x.shape == args.out.shape && args.x.shape == args.residual.shape);
  DCHECK(!args.fp8.wanted());
  const int64_t width = args.x.cols();
  const int64_t rows = args.x.rows();
  const NormKernels& kernels = Chosen();
  for (int64_t t = 0; t < rows; ++t) {
    kernels.add_norm(args.out.as<float>() + t * width, args.residual.as<float>() + t * width,
                     args.x.as<float>() + t * width, args.weight, args.eps, width);
  }
}

}  // namespace hayate::ops
