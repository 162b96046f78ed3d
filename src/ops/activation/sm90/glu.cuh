#pragma once
// One element of a gated unit (clamped_swiglu.h).

#include "ops/activation/clamped_swiglu.h"

namespace hayate::ops::sm90 {

// Comparisons are ordered so that NaN stays. The library's exponential and division in both modes:
// the element-wise work of a gated unit hides behind its memory.
__device__ __forceinline__ float GatedUnit(float gate, float up, const SwiGluForm& form) {
  if (form.limit > 0.0f) {
    gate = gate > form.limit ? form.limit : gate;
    up = up > form.limit ? form.limit : up < -form.limit ? -form.limit : up;
  }
  return gate / (1.0f + expf(-form.alpha * gate)) * (up + form.up_shift);
}

}  // namespace hayate::ops::sm90
