#pragma once
// The operators and shapes that op_timing times: those of SmolLM2-135M, and of an 8B model where
// the size matters.

#include <vector>

#include "bench/op_timing.h"

namespace hayate::bench {

void AddMatmulSpecs(std::vector<OpSpec>& specs);
void AddAttentionSpecs(std::vector<OpSpec>& specs);
void AddRowwiseSpecs(std::vector<OpSpec>& specs);  // norm, rope, SwiGLU, sampling

}  // namespace hayate::bench
