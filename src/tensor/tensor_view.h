#pragma once
// A typed, shaped pointer. Never owns. Row-major and contiguous; a block-quantised tensor is
// contiguous row by row, its innermost extent counting elements.

#include <cstddef>
#include <cstdint>

#include "base/check.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace hayate {

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType kValue = DType::kF32;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType kValue = DType::kI32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType kValue = DType::kI64;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType kValue = DType::kI8;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType kValue = DType::kU8;
};

struct TensorView {
  std::byte* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  // Typed access; the dtype must match (16-bit floats are reached as uint16_t).
  template <typename T>
  T* as() const {
    if constexpr (sizeof(T) == 2) {
      DCHECK_EQ(Info(dtype).block_bytes, 2);
    } else {
      DCHECK(dtype == DTypeOf<T>::kValue) << Info(dtype).name;
    }
    return reinterpret_cast<T*>(data);
  }
  int64_t rows() const { return shape.rank() <= 1 ? 1 : shape.num_rows(); }
  int64_t cols() const { return shape[shape.rank() - 1]; }
  int64_t num_bytes() const { return rows() * RowBytes(dtype, cols()); }
  // Rows [begin, end) of the outermost axis.
  TensorView Slice(int64_t begin, int64_t end) const;
};

// A read-only tensor: the same, over bytes that must not be written (mapped files).
struct ConstTensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;

  ConstTensorView() = default;
  ConstTensorView(const std::byte* bytes, DType type, Shape extents)
      : data(bytes), dtype(type), shape(extents) {}
  ConstTensorView(const TensorView& view) : data(view.data), dtype(view.dtype), shape(view.shape) {}

  template <typename T>
  const T* as() const {
    return TensorView{const_cast<std::byte*>(data), dtype, shape}.as<T>();
  }
  int64_t rows() const { return shape.rank() <= 1 ? 1 : shape.num_rows(); }
  int64_t cols() const { return shape[shape.rank() - 1]; }
  int64_t num_bytes() const { return rows() * RowBytes(dtype, cols()); }
};

}  // namespace hayate
