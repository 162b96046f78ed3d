#pragma once
// The CPU implementations of SwiGLU, a row at a time.

#include <cstdint>
#include <span>

#include "tensor/cpu_features.h"

namespace hayate::ops {

struct SwiGluKernel {
  const char* name;
  bool (*runs_on)(const CpuFeatures& features);
  // out = silu(gate) · up, each [width].
  void (*row)(float* out, const float* gate, const float* up, int64_t width);
};

// Best first; the last runs anywhere.
std::span<const SwiGluKernel> AllSwiGluKernels();

}  // namespace hayate::ops
