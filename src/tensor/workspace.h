#pragma once
// Scratch memory of one rank: a bump allocator over a buffer made at start-up. A step takes what it
// needs and everything returns at once on Reset. Not thread-safe: one rank, one workspace.

#include <cstddef>

#include "base/align.h"
#include "base/check.h"
#include "tensor/buffer.h"
#include "tensor/tensor_view.h"

namespace hayate {

class Workspace {
 public:
  explicit Workspace(Buffer buffer) : buffer_(std::move(buffer)) {}

  // Uninitialised, 256-byte aligned. Running out is a wrong size estimate of ours: CHECK.
  TensorView Take(DType dtype, Shape shape) {
    TensorView view{buffer_.data() + used_, dtype, shape};
    used_ += AlignUp(static_cast<size_t>(view.num_bytes()), kAlignment);
    CHECK_LE(used_, buffer_.size()) << "workspace overflow at " << shape.ToString();
    return view;
  }
  template <typename T>
  T* TakeArray(int64_t count) {
    TensorView view = Take(DType::kU8, {count * static_cast<int64_t>(sizeof(T))});
    return reinterpret_cast<T*>(view.data);
  }

  // Gives back everything taken after the matching mark; use to scope an operator's scratch.
  size_t mark() const { return used_; }
  void ResetTo(size_t mark) { used_ = mark; }

  static constexpr size_t kAlignment = 256;

 private:
  Buffer buffer_;
  size_t used_ = 0;
};

}  // namespace hayate
