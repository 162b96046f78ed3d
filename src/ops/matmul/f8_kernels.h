#pragma once
// Products with F8_E4M3 weights under fp32 scales (Layout::kF8): fp32 activations, and over the
// blocks of 32 columns in order of k, with dot = Σ code · x in fp32,
//
//   acc ← acc + scale · dot
//
// then out = acc, or acc + bias. The same in every kernel, whatever T is.

#include <span>

#include "ops/matmul/kernels.h"

namespace hayate::ops::matmul {

// The best that this CPU runs.
void RunF8(const KernelArgs& args);

struct F8Kernel {
  const char* name;
  bool (*runs_on)(const CpuFeatures& features);
  void (*run)(const KernelArgs& args);
};
// Best first; the last runs anywhere.
std::span<const F8Kernel> AllF8Kernels();

}  // namespace hayate::ops::matmul
