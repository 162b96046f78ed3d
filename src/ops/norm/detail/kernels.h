#pragma once
// The CPU implementations of the norms, a row at a time.

#include <cstdint>
#include <span>

#include "tensor/cpu_features.h"

namespace hayate::ops {

struct NormKernels {
  const char* name;
  bool (*runs_on)(const CpuFeatures& features);
  // out = rms_norm(x) · weight. [width]; out may be x.
  void (*norm)(float* out, const float* x, const float* weight, float eps, int64_t width);
  // residual += x, then as above from the residual.
  void (*add_norm)(float* out, float* residual, const float* x, const float* weight, float eps,
                   int64_t width);
};

// Best first; the last runs anywhere.
std::span<const NormKernels> AllNormKernels();

}  // namespace hayate::ops
