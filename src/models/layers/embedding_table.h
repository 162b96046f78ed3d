#pragma once
// Where a model looks its tokens up: on the CPU the checkpoint's mapped file itself, on other
// devices a copy in their memory.

#include "base/status.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::models {

struct EmbeddingTable {
  ConstTensorView view;  // [V, H], as the checkpoint stores it; device memory
  Buffer storage;        // empty where the view lies in the mapped file
};

Result<EmbeddingTable> PlaceTable(Device& device, ConstTensorView table);

}  // namespace hayate::models
