#pragma once
// ops::LayerNorm on a CUDA device.

#include "ops/norm/layer_norm.h"

namespace hayate::ops::sm90 {

void LayerNorm(Stream stream, const LayerNormArgs& args);

}  // namespace hayate::ops::sm90
