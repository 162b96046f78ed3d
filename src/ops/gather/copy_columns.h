#pragma once
// A matrix into columns of another one: out[i, c] = from[index[i], c] for c < W. Both may be parts
// of wider rows; types may differ.

#include <cstdint>

#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

struct CopyColumnsArgs {
  TensorView out;                  // [L, W] f32 or, on CUDA, bf16
  int64_t out_row_stride = 0;      // elements between rows; 0: W
  ConstTensorView from;            // [T, W] f32 or, on CUDA, bf16
  int64_t from_row_stride = 0;     // elements between rows; 0: W
  const int32_t* index = nullptr;  // [L], each in [0, T); null: row i is row i
};
void CopyColumns(Stream stream, const CopyColumnsArgs& args);

}  // namespace hayate::ops
