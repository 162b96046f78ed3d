#include "ops/matmul/matmul.h"

namespace hayate::ops {

void MatmulReference(float* out, const float* x, const float* weights_f32, const float* bias,
                     int64_t t, int64_t n, int64_t k) {
  for (int64_t token = 0; token < t; ++token) {
    for (int64_t row = 0; row < n; ++row) {
      float sum = 0.0f;
      for (int64_t i = 0; i < k; ++i) sum += x[token * k + i] * weights_f32[row * k + i];
      out[token * n + row] = bias == nullptr ? sum : sum + bias[row];
    }
  }
}

}  // namespace hayate::ops
