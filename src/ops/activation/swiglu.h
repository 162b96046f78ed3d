#pragma once
// out = silu(gate) · up, silu(x) = x / (1 + e^(−x)).

#include "ops/quantize/fp8_rows.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

struct SwiGluArgs {
  // f32, or bf16 on CUDA.
  TensorView out;           // [T, F]; no data: only `fp8` is wanted
  ConstTensorView gate_up;  // [T, 2F]: gate then up
  Fp8Rows fp8;              // the result quantised, CUDA only
};
void SwiGlu(Stream stream, const SwiGluArgs& args);

// The definition, over f32.
void SwiGluReference(const SwiGluArgs& args);

}  // namespace hayate::ops
