#include <cmath>

#include "ops/norm/rms_norm.h"

namespace hayate::ops {

void RmsNormReference(const RmsNormArgs& args) {
  const int64_t width = args.x.cols();
  for (int64_t t = 0; t < args.x.rows(); ++t) {
    const float* x = args.x.as<float>() + t * width;
    float* out = args.out.as<float>() + t * width;
    float squares = 0.0f;
    for (int64_t i = 0; i < width; ++i) squares += x[i] * x[i];
    const float scale = 1.0f / std::sqrt(squares / static_cast<float>(width) + args.eps);
    for (int64_t i = 0; i < width; ++i) out[i] = x[i] * scale * args.weight[i];
  }
}

void AddRmsNormReference(const AddRmsNormArgs& args) {
  const int64_t count = args.x.rows() * args.x.cols();
  float* residual = args.residual.as<float>();
  for (int64_t i = 0; i < count; ++i) residual[i] += args.x.as<float>()[i];
  RmsNormReference({args.out, args.residual, args.weight, args.eps});
}

}  // namespace hayate::ops
