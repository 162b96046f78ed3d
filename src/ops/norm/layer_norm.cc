#include "ops/norm/layer_norm.h"

#include <cmath>

#include "base/check.h"
#include "ops/norm/sm90/layer_norm.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {

void LayerNorm(Stream stream, const LayerNormArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::LayerNorm(stream, args);
  }
  DCHECK(args.x.shape == args.out.shape);
  const int64_t width = args.x.cols();
  for (int64_t t = 0; t < args.x.rows(); ++t) {
    const float* x = args.x.as<float>() + t * width;
    float* out = args.out.as<float>() + t * width;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < width; ++i) sum += x[i];
    const double mean = sum / static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i) squares += (x[i] - mean) * (x[i] - mean);
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(width) + args.eps);
    for (int64_t i = 0; i < width; ++i) {
      out[i] = static_cast<float>((x[i] - mean) * scale) * args.weight[i] + args.bias[i];
    }
  }
}

}  // namespace hayate::ops
