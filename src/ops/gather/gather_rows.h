#pragma once
// Some rows of a matrix: out[i] = from[index[i]].

#include <cstdint>

#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

struct GatherRowsArgs {
  TensorView out;        // [L, W]
  ConstTensorView from;  // [T, W], the same dtype, a plain one
  const int32_t* index;  // [L], each in [0, T)
};
void GatherRows(Stream stream, const GatherRowsArgs& args);

}  // namespace hayate::ops
