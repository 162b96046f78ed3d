#include "tensor/tensor_view.h"

namespace hayate {

TensorView TensorView::Slice(int64_t begin, int64_t end) const {
  CHECK(begin >= 0 && begin <= end && end <= shape[0]) << begin << ' ' << end << shape.ToString();
  Shape sliced{end - begin};
  int64_t inner = 1;
  for (int axis = 1; axis < shape.rank(); ++axis) {
    sliced.Append(shape[axis]);
    inner *= shape[axis];
  }
  return {data + begin * RowBytes(dtype, inner), dtype, sliced};
}

}  // namespace hayate
