#include "models/layers/linear.h"

#include "ops/zero/zero.h"

namespace hayate::models {

ops::MatmulArgs ProductOf(const Linear& linear, const LinearInput& input, TensorView out) {
  return {.out = out,
          .x = input.x,
          .x_fp8 = input.fp8,
          .w = &*linear.weights,
          .bias = linear.bias_data()};
}

void Apply(Stream stream, Workspace& workspace, const Linear& linear, const LinearInput& input,
           TensorView out) {
  if (!linear.weights) {
    return ops::Zero(stream, out);
  }
  ops::Matmul(stream, workspace, ProductOf(linear, input, out));
}

}  // namespace hayate::models
