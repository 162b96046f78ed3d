#include <cmath>

#include "ops/rope/rope.h"

namespace hayate::ops {
namespace {

void Turn(float* head, const RopeArgs& args, const float* cos, const float* sin) {
  const int32_t pairs = args.rotary_dim / 2;
  for (int32_t i = 0; i < pairs; ++i) {
    const bool halves = args.pairing == RopePairing::kHalves;
    float& a = head[halves ? i : 2 * i];
    float& b = head[halves ? i + pairs : 2 * i + 1];
    const float turned_a = a * cos[i] - b * sin[i];
    b = b * cos[i] + a * sin[i];
    a = turned_a;
  }
}

void Norm(float* head, const float* weight, float eps, int64_t width) {
  float squares = 0.0f;
  for (int64_t i = 0; i < width; ++i) squares += head[i] * head[i];
  const float scale = 1.0f / std::sqrt(squares / static_cast<float>(width) + eps);
  for (int64_t i = 0; i < width; ++i) head[i] = head[i] * scale * weight[i];
}

void TurnAll(const TensorView& x, int64_t row_stride, const float* norm, const RopeArgs& args) {
  for (int64_t t = 0; t < x.shape[0]; ++t) {
    const int64_t cos_row = args.positions != nullptr ? args.positions[t] : t;
    const float* cos = args.cos_sin + cos_row * args.rotary_dim;
    for (int64_t h = 0; h < x.shape[1]; ++h) {
      float* head = x.as<float>() + t * row_stride + h * x.shape[2];
      if (norm != nullptr) Norm(head, norm, args.norm_eps, x.shape[2]);
      Turn(head, args, cos, cos + args.rotary_dim / 2);
    }
  }
}

}  // namespace

void RopeReference(const RopeArgs& args) {
  TurnAll(args.q, args.q_row_stride, args.q_norm, args);
  TurnAll(args.k, args.k_row_stride, args.k_norm, args);
}

}  // namespace hayate::ops
