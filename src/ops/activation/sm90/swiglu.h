#pragma once
// The launchers of ops/activation/swiglu.h.

#include "ops/activation/swiglu.h"

namespace hayate::ops::sm90 {

void SwiGlu(Stream stream, const SwiGluArgs& args);

}  // namespace hayate::ops::sm90
