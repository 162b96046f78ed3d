#pragma once
// out = silu(gate) · up, silu(x) = x / (1 + e^(−x)).

#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

struct SwiGluArgs {
  TensorView out;           // [T, F]
  ConstTensorView gate_up;  // [T, 2F]: gate then up
};
void SwiGlu(Stream stream, const SwiGluArgs& args);

// The definition.
void SwiGluReference(const SwiGluArgs& args);

}  // namespace hayate::ops
