#pragma once
// Rows of a table by token id: out[t] = table[ids[t]].

#include <cstdint>

#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

struct EmbeddingArgs {
  TensorView out;         // [T, H] f32
  const int32_t* ids;     // [T], each in [0, V): checked at the request's border
  ConstTensorView table;  // [V, H] as the checkpoint stores it, any weight dtype
};
void Embedding(Stream stream, const EmbeddingArgs& args);

}  // namespace hayate::ops
