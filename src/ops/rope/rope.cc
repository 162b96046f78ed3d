#include "ops/rope/rope.h"

#include <cmath>

#include "base/check.h"
#include "ops/norm/rms_norm.h"
#include "ops/rope/detail/kernels.h"
#include "ops/rope/sm90/rope.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {
namespace {

const RopeKernels& Chosen() {
  static const RopeKernels& chosen = []() -> const RopeKernels& {
    for (const RopeKernels& kernels : AllRopeKernels()) {
      if (kernels.runs_on(DetectCpuFeatures())) return kernels;
    }
    CHECK(false) << "no kernel runs anywhere";
    __builtin_unreachable();
  }();
  return chosen;
}

void TurnAll(const TensorView& x, int64_t row_stride, const float* norm,
             void (*turn)(float*, const float*, const float*, int32_t), const RopeArgs& args) {
  const int64_t heads = x.shape[1], width = x.shape[2];
  for (int64_t t = 0; t < x.shape[0]; ++t) {
    float* row = x.as<float>() + t * row_stride;
    if (norm != nullptr) {
      const TensorView rows{reinterpret_cast<std::byte*>(row), DType::kF32, Shape{heads, width}};
      RmsNorm({}, {rows, rows, norm, args.norm_eps});
    }
    const int64_t cos_row = args.positions != nullptr ? args.positions[t] : t;
    const float* cos = args.cos_sin + cos_row * args.rotary_dim;
    const float* sin = cos + args.rotary_dim / 2;
    for (int64_t h = 0; h < heads; ++h) turn(row + h * width, cos, sin, args.rotary_dim / 2);
  }
}

}  // namespace

void RopeWith(const RopeKernels& kernels, const RopeArgs& args) {
  const auto turn = args.pairing == RopePairing::kHalves ? kernels.halves : kernels.interleaved;
  TurnAll(args.q, args.q_row_stride, args.q_norm, turn, args);
  TurnAll(args.k, args.k_row_stride, args.k_norm, turn, args);
}

void Rope(Stream stream, const RopeArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::Rope(stream, args);
  }
  RopeWith(Chosen(), args);
}

void RopeRows(Stream stream, const RopeRowsArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::RopeRows(stream, args);
  }
  const int64_t pairs = args.out.cols() / 2;
  float* out = args.out.as<float>();
  for (int64_t t = 0; t < args.out.rows(); ++t, out += 2 * pairs) {
    for (int64_t i = 0; i < pairs; ++i) {
      const double angle = double{args.inv_freq[i]} * args.positions[t];
      out[i] = static_cast<float>(std::cos(angle) * args.attention_factor);
      out[pairs + i] = static_cast<float>(std::sin(angle) * args.attention_factor);
    }
  }
}

}  // namespace hayate::ops
