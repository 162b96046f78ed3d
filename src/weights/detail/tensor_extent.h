#pragma once
// Checks that both container formats share.

#include <cstdint>
#include <span>

#include "base/status.h"
#include "weights/tensor_index.h"

namespace hayate::weights::detail {

// Sets shape and bytes from extents (outermost first) and info.dtype. Refuses products that
// overflow, an empty extent in a matrix, and rows that are not whole blocks.
Status SetShape(std::span<const uint64_t> extents, TensorInfo& info);

// kDataLoss when two tensors of one file share a byte.
Status CheckNoOverlap(const TensorIndex& tensors);

}  // namespace hayate::weights::detail
