#include <algorithm>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "ops/matmul/check_piece.h"
#include "ops/matmul/sm90/convert.h"
#include "ops/matmul/sm90/cublaslt.h"
#include "ops/matmul/sm90/matrix.h"
#include "tensor/float16.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int64_t kChunkBytes = int64_t{32} << 20;  // converted at a time
constexpr int64_t kFp4Columns = 32;                 // that share a scale

bool IsPlain(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 ||
         dtype == DType::kF8E4M3 || dtype == DType::kF8E5M2;
}

// Whether a piece's fp8 codes and scales can stay as they are.
std::optional<MatrixLayout> Fp8LayoutOf(const MatrixPiece& piece, int64_t k) {
  const BlockScales& scales = piece.scales;
  if (piece.weights.dtype != DType::kF8E4M3 || scales.empty()) return std::nullopt;
  if (!GemmSupports(Scaling::kVector, k)) return std::nullopt;
  const Shape& shape = piece.weights.shape;
  const bool per_row = scales.rows == 1 || scales.rows >= shape[0];
  if (per_row && scales.cols >= shape[1]) return MatrixLayout::kFp8Vector;
  const bool blocks = scales.rows == kScaleColumns && scales.cols == kScaleColumns;
  const bool whole_rows = piece.row_step == 1 && piece.row_begin % kScaleColumns == 0 &&
                          (piece.row_end % kScaleColumns == 0 || piece.row_end == shape[0]);
  const bool whole = whole_rows && piece.col_begin % kScaleColumns == 0 && k % kScaleColumns == 0;
  if (blocks && whole) return MatrixLayout::kFp8Block;
  return std::nullopt;
}

Result<PartFormat> Fp4Format(const MatrixPiece& piece, MatmulPrecision precision) {
  const BlockScales& scales = piece.scales;
  const bool mxfp4 = !scales.empty() && scales.values.dtype == DType::kF8E8M0 && scales.rows == 1 &&
                     scales.cols == kFp4Columns && piece.col_begin % kFp4Columns == 0 &&
                     piece.col_end % kFp4Columns == 0;
  if (!mxfp4) {
    return Error(ErrorCode::kUnsupported,
                 "F4 weights without a scale of type F8_E8M0 for every {} columns of a row",
                 kFp4Columns);
  }
  return PartFormat{precision == MatmulPrecision::kExact ? MatrixLayout::kF32
                                                         : MatrixLayout::kMxfp4};
}

Result<PartFormat> FormatFor(const MatrixPiece& piece, int64_t k, MatmulPrecision precision) {
  const DType dtype = piece.weights.dtype;
  if (dtype == DType::kF4E2M1) return Fp4Format(piece, precision);
  if (!SupportsConversion(dtype)) {
    return Error(ErrorCode::kUnsupported, "no matrix product on CUDA for weights of type {}",
                 Info(dtype).name);
  }
  if (precision == MatmulPrecision::kExact) return PartFormat{MatrixLayout::kF32};
  if (const auto fp8 = Fp8LayoutOf(piece, k)) return PartFormat{*fp8};
  const bool wide = dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16;
  if (precision == MatmulPrecision::kFp8 && wide && GemmSupports(Scaling::kVector, k)) {
    return PartFormat{MatrixLayout::kFp8Vector};
  }
  if (IsPlain(dtype)) return PartFormat{MatrixLayout::kBf16};
  return PartFormat{MatrixLayout::kStored, dtype};
}

// Brings rows of pieces to the device, and into their layout.
class Packer {
 public:
  Packer(Device& device, int64_t k) : device_(device), k_(k) {}

  // Rows of `piece` from row `first` of the part on, which has `n` rows and starts at `part`.
  Status Pack(const MatrixPiece& piece, const PartFormat& format, std::byte* part, int64_t n,
              int64_t first) {
    if (piece.weights.dtype == DType::kF4E2M1) return PackFp4(piece, format, part, n, first);
    const int64_t row_bytes = CodeBytes(format, 1, k_);
    const int64_t source_row_bytes = RowBytes(piece.weights.dtype, k_);
    const int64_t step = std::max<int64_t>(kChunkBytes / source_row_bytes, 1);
    const bool as_is = IsAsIs(piece, format);
    if (!as_is && staging_.size() == 0) {
      ASSIGN_OR_RETURN(staging_, Buffer::Allocate(device_, static_cast<size_t>(StagingBytes())));
    }
    RETURN_IF_ERROR(UploadScales(piece, format, part + ScalesOffset(format, n, k_), n, first));
    for (int64_t row = 0; row < piece.num_rows(); row += step) {
      const int64_t rows = std::min(step, piece.num_rows() - row);
      std::byte* to = part + (first + row) * row_bytes;
      UploadRows(piece, row, rows, as_is ? to : staging_.data());
      if (as_is) continue;
      if (format.layout == MatrixLayout::kFp8Vector) {
        float* scales = reinterpret_cast<float*>(part + ScalesOffset(format, n, k_));
        QuantizeWeights(device_.load_stream(), {.codes = reinterpret_cast<uint8_t*>(to),
                                                .scales = scales + first + row,
                                                .from = staging_.data(),
                                                .type = piece.weights.dtype,
                                                .rows = rows,
                                                .k = k_});
        continue;
      }
      ConvertWeights(device_.load_stream(),
                     {.out = to,
                      .to = format.layout == MatrixLayout::kF32 ? DType::kF32 : DType::kBF16,
                      .from = staging_.data(),
                      .type = piece.weights.dtype,
                      .rows = rows,
                      .k = k_,
                      .scales = StagedScales(piece, row)});
    }
    return OkStatus();
  }

 private:
  static bool IsAsIs(const MatrixPiece& piece, const PartFormat& format) {
    const DType dtype = piece.weights.dtype;
    switch (format.layout) {
      case MatrixLayout::kF32:
        return dtype == DType::kF32 && piece.scales.empty();
      case MatrixLayout::kBf16:
        return dtype == DType::kBF16;
      case MatrixLayout::kFp8Block:
      case MatrixLayout::kFp8Vector:
        return dtype == DType::kF8E4M3 && !piece.scales.empty();
      case MatrixLayout::kStored:
      case MatrixLayout::kMxfp4:
        return true;
    }
    return false;
  }

  Status PackFp4(const MatrixPiece& piece, const PartFormat& format, std::byte* part, int64_t n,
                 int64_t first) {
    const bool as_is = format.layout == MatrixLayout::kMxfp4;
    if (!as_is && staging_.size() == 0) {
      ASSIGN_OR_RETURN(staging_, Buffer::Allocate(device_, static_cast<size_t>(StagingBytes())));
    }
    const int64_t step = std::max<int64_t>(kChunkBytes / k_, 1);
    for (int64_t row = 0; row < piece.num_rows(); row += step) {
      const int64_t rows = std::min(step, piece.num_rows() - row);
      std::byte* to = part + CodeBytes(format, first + row, k_);
      std::byte* scales =
          as_is ? part + ScalesOffset(format, n, k_) + (first + row) * (k_ / kFp4Columns)
                : StagedScaleData();
      UploadRows(piece, row, rows, as_is ? to : staging_.data());
      UploadFp4Scales(piece, row, rows, scales);
      if (as_is) continue;
      ConvertMxfp4(device_.load_stream(), {.out = to,
                                           .to = DType::kF32,
                                           .codes = staging_.data(),
                                           .scales = scales,
                                           .rows = rows,
                                           .k = k_});
    }
    return OkStatus();
  }

  void UploadFp4Scales(const MatrixPiece& piece, int64_t row, int64_t rows, std::byte* to) {
    const ConstTensorView& scales = piece.scales.values;
    const int64_t width = k_ / kFp4Columns;
    gathered_.resize(static_cast<size_t>(rows * width));
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(gathered_.data() + i * width,
                  scales.data + (piece.row_begin + (row + i) * piece.row_step) * scales.cols() +
                      piece.col_begin / kFp4Columns,
                  static_cast<size_t>(width));
    }
    device_.Upload(to, gathered_.data(), gathered_.size());
  }

  // A chunk of codes, then the scales of a chunk: one a code at most.
  int64_t StagingBytes() const {
    return std::max(kChunkBytes, RowBytes(DType::kF32, k_)) + kPartAlignment + kScaleBytes;
  }

  void UploadRows(const MatrixPiece& piece, int64_t row, int64_t rows, std::byte* to) {
    const DType dtype = piece.weights.dtype;
    const int64_t stride = RowBytes(dtype, piece.weights.shape[1]) * piece.row_step;
    const int64_t bytes = RowBytes(dtype, k_);
    const std::byte* from = piece.weights.data +
                            piece.row_begin * RowBytes(dtype, piece.weights.shape[1]) +
                            row * stride + RowBytes(dtype, piece.col_begin);
    if (stride == bytes) return device_.Upload(to, from, static_cast<size_t>(rows * bytes));
    gathered_.resize(static_cast<size_t>(rows * bytes));
    for (int64_t i = 0; i < rows; ++i) {
      std::memcpy(gathered_.data() + i * bytes, from + i * stride, static_cast<size_t>(bytes));
    }
    device_.Upload(to, gathered_.data(), gathered_.size());
  }

  // Scales that stay with their codes.
  Status UploadScales(const MatrixPiece& piece, const PartFormat& format, std::byte* to, int64_t n,
                      int64_t first) {
    if (piece.scales.empty()) return OkStatus();
    std::vector<float> values;
    if (format.layout == MatrixLayout::kFp8Vector) {
      for (int64_t row = 0; row < piece.num_rows(); ++row) {
        values.push_back(piece.scales.At(piece.row_begin + row * piece.row_step, 0));
      }
      to += first * static_cast<int64_t>(sizeof(float));
    } else if (format.layout == MatrixLayout::kFp8Block) {
      values = BlockScalesOf(piece, n, first);
    } else {
      return StageScales(piece);
    }
    device_.Upload(to, values.data(), values.size() * sizeof(float));
    return OkStatus();
  }

  // The part's scales [K/128, BlockScaleStride(n)] with those of its pieces so far.
  const std::vector<float>& BlockScalesOf(const MatrixPiece& piece, int64_t n, int64_t first) {
    const int64_t stride = BlockScaleStride(n), columns = k_ / kScaleColumns;
    if (first == 0) block_scales_.assign(static_cast<size_t>(columns * stride), 1.0f);
    for (int64_t row = 0; row < piece.num_rows(); row += kScaleColumns) {
      for (int64_t column = 0; column < columns; ++column) {
        block_scales_[static_cast<size_t>(column * stride + (first + row) / kScaleColumns)] =
            piece.scales.At(piece.row_begin + row, piece.col_begin + column * kScaleColumns);
      }
    }
    return block_scales_;
  }

  // Scales that are multiplied into the weights: one for every `cols` columns of every source row
  // block that the piece touches.
  Status StageScales(const MatrixPiece& piece) {
    const BlockScales& scales = piece.scales;
    if (scales.rows % piece.row_step != 0) {
      return Error(ErrorCode::kUnsupported, "every {} rows of fp8 weights with scales of {} rows",
                   piece.row_step, scales.rows);
    }
    const int64_t blocks = scales.values.cols();
    std::vector<float> values;
    for (int64_t row = 0; row < scales.values.rows(); ++row) {
      for (int64_t column = 0; column < k_; ++column) {
        if (column % ScaleStep(piece) != 0) continue;
        values.push_back(scales.At(row * scales.rows, piece.col_begin + column));
      }
    }
    if (static_cast<int64_t>(values.size() * sizeof(float)) > kScaleBytes) {
      return Error(ErrorCode::kUnsupported, "{} x {} scales of fp8 weights are too many to convert",
                   scales.values.rows(), blocks);
    }
    device_.Upload(StagedScaleData(), values.data(), values.size() * sizeof(float));
    return OkStatus();
  }
  // Columns that surely share a scale, whatever the first column is.
  int64_t ScaleStep(const MatrixPiece& piece) const {
    const int64_t cols = std::min<int64_t>(piece.scales.cols, k_);
    return piece.col_begin % piece.scales.cols == 0 ? cols : 1;
  }
  CodeScales StagedScales(const MatrixPiece& piece, int64_t row) const {
    if (piece.scales.empty()) return {};
    const int64_t step = ScaleStep(piece);
    return {.values = reinterpret_cast<const float*>(StagedScaleData()),
            .stride = CeilDiv(k_, step),
            .rows = piece.scales.rows / piece.row_step,
            .cols = step,
            .first_row = piece.row_begin / piece.row_step + row};
  }
  std::byte* StagedScaleData() const { return staging_.data() + staging_.size() - kScaleBytes; }

  static constexpr int64_t kScaleBytes = int64_t{8} << 20;
  Device& device_;
  const int64_t k_;
  Buffer staging_;
  std::vector<std::byte> gathered_;
  std::vector<float> block_scales_;
};

// Parts of equal format that follow each other are one product.
bool CanJoin(const PackedPart& part, const PartFormat& format) {
  if (part.layout != format.code()) return false;
  return format.layout != MatrixLayout::kFp8Block || part.n % kScaleColumns == 0;
}

}  // namespace

int64_t CodeBytes(const PartFormat& format, int64_t n, int64_t k) {
  switch (format.layout) {
    case MatrixLayout::kF32:
      return n * k * 4;
    case MatrixLayout::kBf16:
      return n * k * 2;
    case MatrixLayout::kFp8Block:
    case MatrixLayout::kFp8Vector:
      return n * k;
    case MatrixLayout::kStored:
      return n * RowBytes(format.stored, k);
    case MatrixLayout::kMxfp4:
      return n * (k / 2);
  }
  return 0;
}

int64_t PartBytes(const PartFormat& format, int64_t n, int64_t k) {
  constexpr int64_t kFloat = sizeof(float);
  int64_t scales = 0;
  if (format.layout == MatrixLayout::kFp8Block) {
    scales = BlockScaleStride(n) * CeilDiv<int64_t>(k, kScaleColumns) * kFloat;
  } else if (format.layout == MatrixLayout::kFp8Vector) {
    scales = n * kFloat;
  } else if (format.layout == MatrixLayout::kMxfp4) {
    scales = n * (k / kFp4Columns);
  }
  return ScalesOffset(format, n, k) + AlignUp<int64_t>(scales, kPartAlignment);
}

Result<PackedMatrix> PackMatrix(Device& device, std::span<const MatrixPiece> pieces,
                                MatmulPrecision precision) {
  if (pieces.empty()) return Error(ErrorCode::kInvalidArgument, "a matrix without pieces");
  PackedMatrix packed;
  packed.k = pieces[0].col_end - pieces[0].col_begin;
  packed.source_dtype = pieces[0].weights.dtype;
  struct Place {
    size_t part;
    int64_t first;
  };
  std::vector<Place> places;
  for (const MatrixPiece& piece : pieces) {
    RETURN_IF_ERROR(CheckPiece(piece, packed.k));
    ASSIGN_OR_RETURN(const PartFormat format, FormatFor(piece, packed.k, precision));
    if (packed.parts.empty() || !CanJoin(packed.parts.back(), format)) {
      packed.parts.push_back({.layout = format.code()});
    }
    PackedPart& part = packed.parts.back();
    places.push_back({packed.parts.size() - 1, part.n});
    part.n += piece.num_rows();
    packed.n += piece.num_rows();
  }
  int64_t bytes = 0;
  for (PackedPart& part : packed.parts) {
    part.offset = bytes;
    bytes += PartBytes(PartFormat::Of(part), part.n, packed.k);
  }
  ASSIGN_OR_RETURN(packed.storage, Buffer::Allocate(device, static_cast<size_t>(bytes)));
  Packer packer(device, packed.k);
  for (size_t i = 0; i < pieces.size(); ++i) {
    const PackedPart& part = packed.parts[places[i].part];
    RETURN_IF_ERROR(packer.Pack(pieces[i], PartFormat::Of(part),
                                packed.storage.data() + part.offset, part.n, places[i].first));
  }
  packed.cublaslt = CublasLtPlans::OfCurrentDevice();
  return packed;
}

}  // namespace hayate::ops::sm90
