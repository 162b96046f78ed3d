#pragma once
// The gate's product and the choice of experts on a CUDA device.

#include "ops/moe/router.h"

namespace hayate::ops::sm90 {

// logits [T, E] = x [T, K] · gateᵀ + bias, in fp32. A token's sums depend on its row alone.
struct GateLogitsArgs {
  float* logits = nullptr;
  ConstTensorView x;            // f32 or bf16
  const float* gate = nullptr;  // [E, K]
  const float* bias = nullptr;  // [E] or null
  int64_t num_experts = 0;      // E
};
void GateLogits(Stream stream, const GateLogitsArgs& args);

void Route(Stream stream, const RouterConfig& config, const RouteArgs& args);

}  // namespace hayate::ops::sm90
