#include "models/detail/vendor_tensors.h"

#include <algorithm>
#include <utility>

#include "base/align.h"
#include "base/check.h"
#include "base/error.h"
#include "models/detail/load_progress.h"
#include "weights/dequantize.h"

namespace hayate::models {
namespace {

constexpr int32_t kFp4Columns = 32;  // that share a scale

}  // namespace

Result<ConstTensorView> VendorTensors::Tensor(const std::string& name, const Shape& shape) {
  ASSIGN_OR_RETURN(const ConstTensorView tensor, checkpoint_.Tensor(name, shape));
  if (num_tensors_++ % options_.num_ranks == options_.rank) {
    RETURN_IF_ERROR(checkpoint_.CheckFinite(name));
  }
  return tensor;
}

Result<Buffer> VendorTensors::Floats(const std::string& name, const Shape& shape) {
  return Floats(name, shape, {0, shape.num_elements()});
}

Result<Buffer> VendorTensors::Floats(const std::string& name, const Shape& shape, Range elements) {
  ASSIGN_OR_RETURN(const ConstTensorView tensor, Tensor(name, shape));
  std::vector<float> whole(static_cast<size_t>(shape.num_elements()));
  weights::Dequantize(tensor, whole);
  if (elements.size() == 0) return Buffer();
  ASSIGN_OR_RETURN(
      Buffer buffer,
      Buffer::Allocate(*options_.device, static_cast<size_t>(elements.size()) * sizeof(float)));
  options_.device->Upload(buffer.data(), whole.data() + elements.begin, buffer.size());
  return buffer;
}

Result<ops::MatrixPiece> VendorTensors::Piece(const Part& part, int64_t k, Range columns) {
  const std::string name = part.name + ".weight", scale = part.name + ".scale";
  const auto found = checkpoint_.tensors().find(name);
  const bool packed = found != checkpoint_.tensors().end() && found->second.dtype == DType::kI8;
  ops::MatrixPiece piece = {.row_begin = part.rows.begin,
                            .row_end = part.rows.end,
                            .col_begin = columns.begin,
                            .col_end = columns.end};
  ASSIGN_OR_RETURN(piece.weights, Tensor(name, {part.n, packed ? k / 2 : k}));
  if (packed) piece.weights = {piece.weights.data, DType::kF4E2M1, {part.n, k}};
  const bool fp8 = piece.weights.dtype == DType::kF8E4M3;
  if (!packed && !fp8) return piece;
  const int32_t rows = packed ? 1 : tile_, cols = packed ? kFp4Columns : tile_;
  ASSIGN_OR_RETURN(const ConstTensorView scales,
                   Tensor(scale, {CeilDiv<int64_t>(part.n, rows), CeilDiv<int64_t>(k, cols)}));
  piece.scales = {.values = scales, .rows = rows, .cols = cols};
  return piece;
}

Result<Linear> VendorTensors::Matrix(const std::vector<Part>& parts, int64_t k, Range columns,
                                     ops::MatmulPrecision precision) {
  std::vector<ops::MatrixPiece> pieces;
  for (const Part& part : parts) {
    ASSIGN_OR_RETURN(const ops::MatrixPiece piece, Piece(part, k, columns));
    if (part.rows.size() > 0 && columns.size() > 0) pieces.push_back(piece);
  }
  Linear linear;
  if (pieces.empty()) return linear;
  ASSIGN_OR_RETURN(linear.weights, ops::PackMatrix(*options_.device, pieces, precision));
  return linear;
}

Result<ops::PackedMatrix> VendorTensors::Packed(const std::vector<Part>& parts, int64_t k,
                                                Range columns, ops::MatmulPrecision precision) {
  ASSIGN_OR_RETURN(Linear linear, Matrix(parts, k, columns, precision));
  CHECK(linear.weights.has_value()) << parts[0].name;
  return std::move(*linear.weights);
}

void VendorTensors::Report(int done, int total) const {
  ReportProgress(checkpoint_, options_, done, total);
}

Result<Linear> VendorTensors::Matrix(const std::string& name, int64_t n, int64_t k,
                                     ops::MatmulPrecision precision) {
  return Matrix({{name, n, {0, n}}}, k, {0, k}, precision);
}

}  // namespace hayate::models
