#pragma once
// Where each tensor of a checkpoint lies.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace hayate::weights {

struct TensorInfo {
  DType dtype = DType::kF32;
  Shape shape;          // row-major, outermost first, whatever the file's own order; rank 1 to 4
  int file_index = 0;   // into Checkpoint::file_paths()
  uint64_t offset = 0;  // of the first byte, from the start of the file
  uint64_t bytes = 0;
};

// By name. Loaders refuse a name that appears twice.
using TensorIndex = std::map<std::string, TensorInfo, std::less<>>;

}  // namespace hayate::weights
