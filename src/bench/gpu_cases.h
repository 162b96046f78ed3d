#pragma once
// The operators and shapes that op_timing times on a GPU: products of Qwen3-8B, Llama-3.3-70B and
// DeepSeek-V4-Flash, and attention, row-wise operators and sampling of an 8B model.

#include <vector>

#include "bench/op_timing.h"

namespace hayate::bench {

// In the order of a report. A case opens the GPU for itself.
std::vector<OpSpec> GpuOpSpecs();

void AddGpuMatmulSpecs(std::vector<OpSpec>& specs);
void AddGpuAttentionSpecs(std::vector<OpSpec>& specs);
void AddGpuRowwiseSpecs(std::vector<OpSpec>& specs);  // norm, SwiGLU, sampling

// Copies that a case needs of `bytes` so that no call finds its own in the second-level cache.
int32_t GpuCopies(int64_t bytes);

// The copy rate is measured; products are held against the dense rates that NVIDIA states for the
// H200, which no kernel reaches at its power limit.
Roofline MeasureGpuRoofline();

}  // namespace hayate::bench
