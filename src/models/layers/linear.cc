#include "models/layers/linear.h"

#include "ops/zero/zero.h"

namespace hayate::models {

void Apply(Stream stream, Workspace& workspace, const Linear& linear, ConstTensorView x,
           TensorView out) {
  if (!linear.weights) {
    return ops::Zero(stream, out);
  }
  ops::Matmul(stream, workspace,
              {.out = out, .x = x, .w = &*linear.weights, .bias = linear.bias_data()});
}

}  // namespace hayate::models
