#pragma once
// Root-mean-square norm: out = x / √(mean(x²) + eps) · weight, in fp32 over the last axis.

//
// Activations (x, out) are f32 or bf16 on CUDA and f32 on the CPU; the residual is f32.

#include "ops/quantize/fp8_rows.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

struct RmsNormArgs {
  TensorView out;       // [T, H]; no data: only `fp8` is wanted
  ConstTensorView x;    // [T, H]
  const float* weight;  // [H]
  float eps = 1e-5f;
  Fp8Rows fp8;  // the result quantised, CUDA only
};
void RmsNorm(Stream stream, const RmsNormArgs& args);

struct AddRmsNormArgs {
  TensorView residual;  // [T, H], in and out: residual += x
  ConstTensorView x;    // [T, H]
  TensorView out;       // [T, H] = RmsNorm(residual); no data: only `fp8` is wanted
  const float* weight;  // [H]
  float eps = 1e-5f;
  Fp8Rows fp8;  // the result quantised, CUDA only
};
// On CUDA the launch right before it in the stream does not write the residual, and lets it begin
// early only after its own wait (dependent_launch.cuh), as products, sums over ranks and copies do.
void AddRmsNorm(Stream stream, const AddRmsNormArgs& args);

// The definitions, over f32. A row's result depends on that row alone, in every implementation.
void RmsNormReference(const RmsNormArgs& args);
void AddRmsNormReference(const AddRmsNormArgs& args);

}  // namespace hayate::ops
