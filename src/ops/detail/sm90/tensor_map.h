#pragma once
// Descriptions of global tensors for the bulk copy engine. Host only; no device work, so it may be
// called while a graph is captured.

#include <cstdint>
#include <span>

#include "base/status.h"
#include "tensor/dtype.h"

struct CUtensorMap_st;

namespace hayate::ops::sm90 {

// A tensor of up to five axes, innermost first. Element strides are 1 along axis 0.
struct TensorMapArgs {
  const void* data = nullptr;        // device memory, 16-byte aligned
  DType dtype = DType::kBF16;        // F32, F16, BF16, or one byte
  std::span<const int64_t> extents;  // elements
  std::span<const int64_t> strides;  // bytes of axes 1 …, multiples of 16
  std::span<const int64_t> box;      // elements of a copy, each ≤ 256
  bool swizzle = true;               // of the bytes that box[0] then covers: 128 or 64
};
// Fails with kInvalidArgument where the driver refuses the description (it prints it).
Status MakeTensorMap(const TensorMapArgs& args, CUtensorMap_st* map);

// The map of a row-major matrix [rows, columns], copied in boxes of 128 bytes × `box_rows` rows.
Status MakeMatrixMap(const void* data, DType dtype, int64_t rows, int64_t columns,
                     int64_t row_bytes, int64_t box_rows, CUtensorMap_st* map);

}  // namespace hayate::ops::sm90
