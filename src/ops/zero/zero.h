#pragma once
// out = 0: what a rank without weights adds to a sum over ranks.

#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

void Zero(Stream stream, TensorView out);

}  // namespace hayate::ops
