#include "ops/sparse_attention/head_rotation.h"

#include <cmath>

#include "base/check.h"
#include "ops/detail/lanes.h"
#include "ops/sparse_attention/latent_rows.h"
#include "ops/sparse_attention/quantize.h"
#include "ops/sparse_attention/sm90/head_rotation.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {

void RotatePairs(float* x, const float* cos_sin, int32_t rotary, Rotation direction) {
  const int32_t half = rotary / 2;
  for (int32_t i = 0; i < half; ++i) {
    const float cos = cos_sin[i];
    const float sin = direction == Rotation::kForward ? cos_sin[half + i] : -cos_sin[half + i];
    const float a = x[2 * i], b = x[2 * i + 1];
    x[2 * i] = a * cos - b * sin;
    x[2 * i + 1] = a * sin + b * cos;
  }
}

void RotateHeads(Stream stream, const HeadRotationArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::RotateHeads(stream, args);
  }
  const int64_t tokens = args.x.shape[0], heads = args.x.shape[1], width = args.x.shape[2];
  DCHECK(args.rotary % 2 == 0 && args.rotary <= width);
  for (int64_t t = 0; t < tokens; ++t) {
    const float* cos_sin = args.cos_sin + t * args.rotary;
    for (int64_t h = 0; h < heads; ++h) {
      float* x = args.x.as<float>() + (t * heads + h) * width;
      if (args.rms_eps > 0.0f) {
        const float mean = detail::Dot(x, x, width) / static_cast<float>(width);
        const float inverse = 1.0f / std::sqrt(mean + args.rms_eps);
        for (int64_t i = 0; i < width; ++i) x[i] *= inverse;
      }
      RotatePairs(x + width - args.rotary, cos_sin, args.rotary, args.direction);
      if (args.hadamard) Hadamard(x, width);
      if (args.simulate_fp4) latent::SimulateFp4(x, width);
    }
  }
}

void SinglePrecisionRopeRows(Stream stream, const SinglePrecisionRopeArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::SinglePrecisionRopeRows(stream, args);
  }
  const int64_t half = args.out.cols() / 2;
  for (int64_t i = 0; i < args.out.rows(); ++i) {
    float* row = args.out.as<float>() + i * 2 * half;
    for (int64_t f = 0; f < half; ++f) {
      const float angle = static_cast<float>(args.positions[i]) * args.inv_freq[f];
      row[f] = static_cast<float>(std::cos(double{angle}));
      row[half + f] = static_cast<float>(std::sin(double{angle}));
    }
  }
}

}  // namespace hayate::ops
