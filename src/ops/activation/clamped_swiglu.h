#pragma once
// Gated units that clamp their inputs, of which SwiGLU is the plain case:
//
//   g = min(gate, limit), u = clamp(up, −limit, limit)
//   out = (u + up_shift) · g / (1 + e^(−alpha · g))

#include <cstdint>
#include <span>

#include "tensor/cpu_features.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

struct SwiGluForm {
  float limit = 0.0f;     // 0: none. GPT-OSS 7, DeepSeek V4 10
  float alpha = 1.0f;     // GPT-OSS 1.702
  float up_shift = 0.0f;  // GPT-OSS 1

  // What ops::SwiGlu computes.
  bool plain() const { return limit == 0.0f && alpha == 1.0f && up_shift == 0.0f; }
};

struct ClampedSwiGluArgs {
  TensorView out;           // [T, F], f32 or, on CUDA, bf16
  ConstTensorView gate_up;  // [T, 2F]: gate then up
  SwiGluForm form;
};
void ClampedSwiGlu(Stream stream, const ClampedSwiGluArgs& args);

// The definition.
void ClampedSwiGluReference(const ClampedSwiGluArgs& args);

// The CPU implementations, a row at a time; best first, the last runs anywhere.
struct ClampedSwiGluKernel {
  const char* name;
  bool (*runs_on)(const CpuFeatures& features);
  void (*row)(float* out, const float* gate, const float* up, int64_t width,
              const SwiGluForm& form);
};
std::span<const ClampedSwiGluKernel> AllClampedSwiGluKernels();

}  // namespace hayate::ops
