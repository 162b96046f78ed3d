#pragma once
// How a rank takes its part of a tensor: whole rows (the output axis of a projection) or a range of
// columns (the input axis). Only that part of the file is read.

#include <cstdint>

#include "base/status.h"
#include "tensor/tensor_view.h"

namespace hayate::weights {

// A half-open range of a split axis.
struct Partition {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const Partition&, const Partition&) = default;
};

struct Split {
  int64_t count = 0;  // extent of the axis
  int num_ranks = 1;
  int64_t multiple_of = 1;  // heads × head size, or a block size: pieces are cut only there
};

// The part of `rank`. Pieces cover the axis in rank order and differ by at most one multiple, the
// larger ones first; with fewer multiples than ranks the last ranks get nothing. A count that is no
// multiple is kInvalidArgument.
Result<Partition> SplitEvenly(const Split& split, int rank);

enum class ShardAxis : uint8_t {
  kNone,  // the whole tensor
  kRows,  // the outermost axis
  kCols,  // the innermost axis; for block types both ends lie on block boundaries
};

struct ShardSpec {
  ShardAxis axis = ShardAxis::kNone;
  Partition range;
};

// The shape of the part. kInvalidArgument when the range does not fit the tensor.
Result<Shape> ShardShape(const ConstTensorView& tensor, const ShardSpec& spec);

// Rows are contiguous, so a row shard is a view of the tensor itself. CHECKs that the spec is one
// of rows or none and fits.
ConstTensorView RowShard(const ConstTensorView& tensor, const ShardSpec& spec);

// Copies the part into `out`, which has the tensor's dtype and the part's shape.
Status CopyShard(const ConstTensorView& tensor, const ShardSpec& spec, TensorView out);

}  // namespace hayate::weights
