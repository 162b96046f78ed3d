#pragma once
// Layer norm: out = (x − mean(x)) / √(var(x) + eps) · weight + bias, in fp32 over the last axis.

#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

struct LayerNormArgs {
  TensorView out;       // [T, H], of the type of x; may be x
  ConstTensorView x;    // [T, H], f32 or, on CUDA, bf16
  const float* weight;  // [H]
  const float* bias;    // [H]
  float eps = 1e-6f;
};
// A row's result depends on that row alone.
void LayerNorm(Stream stream, const LayerNormArgs& args);

}  // namespace hayate::ops
