#pragma once
// The extents of a tensor, outermost first; at most four.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"

namespace hayate {

class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    CHECK_LE(static_cast<int>(dims.size()), kMaxRank);
    for (const int64_t dim : dims) dims_[static_cast<size_t>(rank_++)] = dim;
  }

  int rank() const { return rank_; }
  int64_t operator[](int axis) const {
    DCHECK(axis >= 0 && axis < rank_) << "axis " << axis << " of rank " << rank_;
    return dims_[static_cast<size_t>(axis)];
  }
  void Append(int64_t dim) {
    CHECK_LT(rank_, kMaxRank);
    dims_[static_cast<size_t>(rank_++)] = dim;
  }
  int64_t num_elements() const { return ProductOf(rank_); }
  // Of all extents but the innermost, which may be 0.
  int64_t num_rows() const { return ProductOf(rank_ - 1); }
  // "[4, 576]".
  std::string ToString() const {
    std::string text = "[";
    for (int i = 0; i < rank_; ++i) {
      if (i > 0) text += ", ";
      text += std::to_string(dims_[static_cast<size_t>(i)]);
    }
    return text + "]";
  }
  friend bool operator==(const Shape&, const Shape&) = default;

 private:
  int64_t ProductOf(int axes) const {
    int64_t count = 1;
    for (int i = 0; i < axes; ++i) count *= dims_[static_cast<size_t>(i)];
    return count;
  }

  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace hayate
