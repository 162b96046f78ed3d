#include "models/detail/tensor_reader.h"

#include <algorithm>

#include "base/align.h"
#include "base/error.h"
#include "weights/dequantize.h"

namespace hayate::models {

namespace {
constexpr int64_t kScaledColumns = 32;  // what a cut matrix with scales is a multiple of
}

Result<ConstTensorView> TensorReader::Read(const std::string& name, const Shape& shape,
                                           Readers readers) {
  ASSIGN_OR_RETURN(const ConstTensorView tensor, checkpoint_.Tensor(name, shape));
  const bool ours =
      readers == Readers::kThisOne || num_tensors_++ % options_.num_ranks == options_.rank;
  if (ours) RETURN_IF_ERROR(checkpoint_.CheckFinite(name));
  return tensor;
}

Result<ConstTensorView> TensorReader::Tensor(const std::string& name, const Shape& shape) {
  return Read(name, shape, Readers::kAll);
}

Result<Buffer> TensorReader::Vector(const std::string& name, int64_t size, Range range) {
  return Vectors({{name, size, range}});
}

Result<Buffer> TensorReader::Vectors(const std::vector<VectorPart>& parts) {
  int64_t size = 0;
  for (const VectorPart& part : parts) size += part.range.size();
  if (size == 0) return Buffer();
  ASSIGN_OR_RETURN(Buffer buffer,
                   Buffer::Allocate(*options_.device, static_cast<size_t>(size) * sizeof(float)));
  std::vector<float> joined, whole;
  for (const VectorPart& part : parts) {
    // Not every rank has a part of every vector, so each looks through what it reads.
    ASSIGN_OR_RETURN(const ConstTensorView tensor, Read(part.name, {part.size}, Readers::kThisOne));
    whole.resize(static_cast<size_t>(part.size));
    weights::Dequantize(tensor, whole);
    joined.insert(joined.end(), whole.begin() + part.range.begin, whole.begin() + part.range.end);
  }
  options_.device->Upload(buffer.data(), joined.data(), buffer.size());
  return buffer;
}

Result<ops::MatrixPiece> TensorReader::Piece(const Matrix& matrix, Readers readers) {
  const std::string name = matrix.name + ".weight";
  ops::MatrixPiece piece = {.row_begin = matrix.rows.begin,
                            .row_end = matrix.rows.end,
                            .col_begin = matrix.cols.begin,
                            .col_end = matrix.cols.end};
  ASSIGN_OR_RETURN(piece.weights, Read(name, {matrix.n, matrix.k}, readers));
  if (piece.weights.dtype != DType::kF8E4M3 || block_.rows == 0) return piece;
  ASSIGN_OR_RETURN(piece.scales.values, Read(name + "_scale_inv",
                                             {CeilDiv<int64_t>(matrix.n, block_.rows),
                                              CeilDiv<int64_t>(matrix.k, block_.cols)},
                                             readers));
  piece.scales.rows = block_.rows;
  piece.scales.cols = block_.cols;
  return piece;
}

Result<ops::MatrixPiece> TensorReader::Piece(const Matrix& matrix) {
  return Piece(matrix, Readers::kAll);
}

Result<ops::PackedMatrix> TensorReader::Pack(const std::vector<Matrix>& matrices,
                                             const std::vector<ops::MatrixPiece>& pieces,
                                             ops::MatmulPrecision precision) const {
  Result<ops::PackedMatrix> packed = ops::PackMatrix(*options_.device, pieces, precision);
  if (!packed.ok()) return packed.status().Under(matrices.front().name);
  packed->sum_order = options_.sum_order;
  return packed;
}

Result<std::optional<ops::PackedMatrix>> TensorReader::Pack(const std::vector<Matrix>& matrices) {
  return Pack(matrices, options_.precision);
}

Result<std::optional<ops::PackedMatrix>> TensorReader::Pack(const std::vector<Matrix>& matrices,
                                                            ops::MatmulPrecision precision) {
  std::vector<ops::MatrixPiece> pieces;
  for (const Matrix& matrix : matrices) {
    ASSIGN_OR_RETURN(const ops::MatrixPiece piece, Piece(matrix, Readers::kAll));
    if (matrix.rows.size() > 0 && matrix.cols.size() > 0) pieces.push_back(piece);
  }
  std::optional<ops::PackedMatrix> packed;
  if (pieces.empty()) return packed;
  ASSIGN_OR_RETURN(packed, Pack(matrices, pieces, precision));
  return packed;
}

Result<ops::PackedMatrix> TensorReader::PackWhole(const std::string& name, int64_t n, int64_t k,
                                                  ops::MatmulPrecision precision) {
  const Matrix matrix = {name, n, k, {0, n}, {0, k}};
  ASSIGN_OR_RETURN(const ops::MatrixPiece piece, Piece(matrix, Readers::kAll));
  return Pack({matrix}, {piece}, precision);
}

Result<ops::PackedMatrix> TensorReader::PackOwn(const std::vector<Matrix>& matrices) {
  std::vector<ops::MatrixPiece> pieces;
  for (const Matrix& matrix : matrices) {
    ASSIGN_OR_RETURN(const ops::MatrixPiece piece, Piece(matrix, Readers::kThisOne));
    pieces.push_back(piece);
  }
  return Pack(matrices, pieces, options_.precision);
}

int64_t ColumnUnit(DType dtype) {
  return dtype == DType::kF8E4M3 || dtype == DType::kF4E2M1 ? kScaledColumns
                                                            : Info(dtype).block_elements;
}

}  // namespace hayate::models
