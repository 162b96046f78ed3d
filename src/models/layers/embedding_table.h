#pragma once
// Where a model looks its tokens up: on the CPU the checkpoint's mapped file itself, on other
// devices a copy in their memory.

#include "base/status.h"
#include "tensor/buffer.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::models {

struct EmbeddingTable {
  ConstTensorView view;  // [V, H], as the checkpoint stores it; memory that the device reads
  Buffer storage;        // empty where the view lies in the mapped file
};

Result<EmbeddingTable> PlaceTable(Device& device, ConstTensorView table);
// The same for a table that is larger than the device's memory: its copy is pinned host memory,
// which kernels read a row at a time.
Result<EmbeddingTable> PlaceHostTable(Device& device, ConstTensorView table);

}  // namespace hayate::models
