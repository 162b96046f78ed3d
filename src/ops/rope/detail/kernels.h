#pragma once
// The CPU implementations of the rotation: one head of one token.

#include <cstdint>
#include <span>

#include "tensor/cpu_features.h"

namespace hayate::ops {

struct RopeKernels {
  const char* name;
  bool (*runs_on)(const CpuFeatures& features);
  // Pairs (i, i + pairs) and (2i, 2i + 1); cos and sin are [pairs].
  void (*halves)(float* head, const float* cos, const float* sin, int32_t pairs);
  void (*interleaved)(float* head, const float* cos, const float* sin, int32_t pairs);
};

// Best first; the last runs anywhere.
std::span<const RopeKernels> AllRopeKernels();

// Rope with a given implementation.
struct RopeArgs;
void RopeWith(const RopeKernels& kernels, const RopeArgs& args);

}  // namespace hayate::ops
