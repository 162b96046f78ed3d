#pragma once
// ops::ClampedSwiGlu on a CUDA device.

#include "ops/activation/clamped_swiglu.h"

namespace hayate::ops::sm90 {

void ClampedSwiGlu(Stream stream, const ClampedSwiGluArgs& args);

}  // namespace hayate::ops::sm90
