#include "models/layers/linear.h"

#include <cstring>

namespace hayate::models {

void Apply(Stream stream, Workspace& workspace, const Linear& linear, ConstTensorView x,
           TensorView out) {
  if (!linear.weights) {
    std::memset(out.data, 0, static_cast<size_t>(out.num_bytes()));
    return;
  }
  ops::Matmul(stream, workspace,
              {.out = out, .x = x, .w = &*linear.weights, .bias = linear.bias_data()});
}

}  // namespace hayate::models
