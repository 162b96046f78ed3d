#include "ops/matmul/check_piece.h"

#include "base/align.h"
#include "base/error.h"

namespace hayate::ops {
namespace {

Status CheckScaleShape(const BlockScales& scales, const Shape& shape) {
  if (scales.empty()) return OkStatus();
  if (scales.rows < 1 || scales.cols < 1 ||
      scales.values.shape !=
          Shape{CeilDiv<int64_t>(shape[0], scales.rows), CeilDiv<int64_t>(shape[1], scales.cols)}) {
    return Error(ErrorCode::kInvalidArgument,
                 "scales of shape {} for blocks of {} x {} of weights {}",
                 scales.values.shape.ToString(), scales.rows, scales.cols, shape.ToString());
  }
  return OkStatus();
}

}  // namespace

Status CheckPiece(const MatrixPiece& piece, int64_t k) {
  const Shape& shape = piece.weights.shape;
  const DTypeInfo& info = Info(piece.weights.dtype);
  if (shape.rank() != 2) {
    return Error(ErrorCode::kInvalidArgument, "a weight matrix has shape {}, not [N, K]",
                 shape.ToString());
  }
  if (piece.row_step < 1 || piece.row_begin < 0 || piece.row_begin > piece.row_end ||
      piece.row_end > shape[0] || piece.col_begin < 0 || piece.col_begin >= piece.col_end ||
      piece.col_end > shape[1]) {
    return Error(ErrorCode::kInvalidArgument, "shard [{}, {}) x [{}, {}) is outside of {}",
                 piece.row_begin, piece.row_end, piece.col_begin, piece.col_end, shape.ToString());
  }
  if (shape[1] % info.block_elements != 0 || piece.col_begin % info.block_elements != 0 ||
      piece.col_end % info.block_elements != 0) {
    return Error(ErrorCode::kInvalidArgument, "columns [{}, {}) of {} cut a block of {} ({} wide)",
                 piece.col_begin, piece.col_end, shape.ToString(), info.name, info.block_elements);
  }
  if (piece.col_end - piece.col_begin != k) {
    return Error(ErrorCode::kInvalidArgument, "pieces of {} and {} columns cannot be joined", k,
                 piece.col_end - piece.col_begin);
  }
  return CheckScaleShape(piece.scales, shape);
}

}  // namespace hayate::ops
