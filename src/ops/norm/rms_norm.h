#pragma once
// Root-mean-square norm: out = x / √(mean(x²) + eps) · weight, in fp32 over the last axis.

#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

struct RmsNormArgs {
  TensorView out;       // [T, H]
  ConstTensorView x;    // [T, H]
  const float* weight;  // [H]
  float eps = 1e-5f;
};
void RmsNorm(Stream stream, const RmsNormArgs& args);

struct AddRmsNormArgs {
  TensorView residual;  // [T, H], in and out: residual += x
  ConstTensorView x;    // [T, H]
  TensorView out;       // [T, H] = RmsNorm(residual)
  const float* weight;  // [H]
  float eps = 1e-5f;
};
void AddRmsNorm(Stream stream, const AddRmsNormArgs& args);

// The definitions. A row's result depends on that row alone, in every implementation.
void RmsNormReference(const RmsNormArgs& args);
void AddRmsNormReference(const AddRmsNormArgs& args);

}  // namespace hayate::ops
