#pragma once
// ops::Zero on a CUDA stream.

#include "ops/zero/zero.h"

namespace hayate::ops::cuda {

void Zero(Stream stream, TensorView out);

}  // namespace hayate::ops::cuda
