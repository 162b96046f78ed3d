#include "weights/shard_plan.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace hayate::weights {

Result<Partition> SplitEvenly(const Split& split, int rank) {
  CHECK(split.num_ranks > 0 && rank >= 0 && rank < split.num_ranks)
      << rank << " of " << split.num_ranks;
  CHECK_GT(split.multiple_of, 0);
  if (split.count < 0 || split.count % split.multiple_of != 0) {
    return Error(ErrorCode::kInvalidArgument,
                 "{} cannot be split into pieces that are multiples of {}", split.count,
                 split.multiple_of);
  }
  const int64_t units = split.count / split.multiple_of;
  const int64_t each = units / split.num_ranks, larger = units % split.num_ranks;
  const auto begin = [&](int64_t r) {
    return (r * each + std::min(r, larger)) * split.multiple_of;
  };
  return Partition{begin(rank), begin(rank + 1)};
}

Result<Shape> ShardShape(const ConstTensorView& tensor, const ShardSpec& spec) {
  const Shape& shape = tensor.shape;
  if (spec.axis == ShardAxis::kNone) return shape;
  const int axis = spec.axis == ShardAxis::kRows ? 0 : shape.rank() - 1;
  const Partition range = spec.range;
  if (range.begin < 0 || range.begin > range.end || range.end > shape[axis]) {
    return Error(ErrorCode::kInvalidArgument, "shard [{}, {}) of axis {} does not fit {}",
                 range.begin, range.end, axis, shape.ToString());
  }
  // A vector of a block type is one row: its outermost axis is its innermost one.
  const int block = axis == shape.rank() - 1 ? Info(tensor.dtype).block_elements : 1;
  if (range.begin % block != 0 || range.end % block != 0) {
    return Error(ErrorCode::kInvalidArgument, "shard [{}, {}) cuts a {} block of {} elements",
                 range.begin, range.end, Info(tensor.dtype).name, block);
  }
  Shape part;
  for (int i = 0; i < shape.rank(); ++i) part.Append(i == axis ? range.size() : shape[i]);
  return part;
}

ConstTensorView RowShard(const ConstTensorView& tensor, const ShardSpec& spec) {
  CHECK(spec.axis != ShardAxis::kCols) << "a column shard is not contiguous";
  const Result<Shape> shape = ShardShape(tensor, spec);
  CHECK(shape.ok()) << shape.status().ToString();
  if (spec.axis == ShardAxis::kNone) return tensor;
  const int64_t outer_bytes = tensor.shape[0] == 0 ? 0 : tensor.num_bytes() / tensor.shape[0];
  // Block vectors are cut inside their only row.
  const int64_t begin_bytes = tensor.shape.rank() == 1 ? RowBytes(tensor.dtype, spec.range.begin)
                                                       : outer_bytes * spec.range.begin;
  return ConstTensorView(tensor.data + begin_bytes, tensor.dtype, *shape);
}

Status CopyShard(const ConstTensorView& tensor, const ShardSpec& spec, TensorView out) {
  ASSIGN_OR_RETURN(const Shape shape, ShardShape(tensor, spec));
  if (out.dtype != tensor.dtype || out.shape != shape) {
    return Error(ErrorCode::kInvalidArgument, "a shard of {} {} does not fit a buffer of {} {}",
                 Info(tensor.dtype).name, shape.ToString(), Info(out.dtype).name,
                 out.shape.ToString());
  }
  if (shape.num_elements() == 0) return OkStatus();
  if (spec.axis != ShardAxis::kCols) {
    const ConstTensorView part = RowShard(tensor, spec);
    std::memcpy(out.data, part.data, static_cast<size_t>(part.num_bytes()));
    return OkStatus();
  }
  const int64_t from_stride = RowBytes(tensor.dtype, tensor.cols());
  const int64_t to_stride = RowBytes(tensor.dtype, spec.range.size());
  const std::byte* from = tensor.data + RowBytes(tensor.dtype, spec.range.begin);
  for (int64_t row = 0; row < tensor.rows(); ++row) {
    std::memcpy(out.data + row * to_stride, from + row * from_stride,
                static_cast<size_t>(to_stride));
  }
  return OkStatus();
}

}  // namespace hayate::weights
