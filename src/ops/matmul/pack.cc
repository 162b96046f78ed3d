#include <cstring>

#include "base/error.h"
#include "ops/matmul/check_piece.h"
#include "ops/matmul/kernels.h"
#include "ops/matmul/row_block.h"
#include "tensor/float16.h"

namespace hayate::ops::matmul {
namespace {

// F8 values without scales are exact in bf16, so they share its layouts.
Result<Layout> LayoutFor(DType dtype, bool scaled, MatmulPrecision precision,
                         const Kernels& kernels) {
  if (precision == MatmulPrecision::kExact && (IsBlockType(dtype) || scaled)) return Layout::kF32;
  if (scaled) return dtype == DType::kF4E2M1 ? Layout::kNibbleMxfp4 : Layout::kF8;
  const bool bf16_dot = kernels.bf16_dot && precision == MatmulPrecision::kFast;
  switch (dtype) {
    case DType::kF32:
      return Layout::kF32;
    case DType::kF16:
      return Layout::kF16;
    case DType::kBF16:
    case DType::kF8E4M3:
    case DType::kF8E5M2:
      return bf16_dot ? Layout::kBf16Dot : Layout::kBf16;
    case DType::kQ4_0:
      return Layout::kNibble;
    case DType::kQ4_1:
      return Layout::kNibbleMin;
    case DType::kIQ4_NL:
      return Layout::kNibbleIq4Nl;
    case DType::kMXFP4:
      return Layout::kNibbleMxfp4;
    case DType::kQ4_K:
      return Layout::kNibbleSuper;
    case DType::kQ8_0:
    case DType::kQ5_0:
      return Layout::kByte;
    case DType::kQ5_1:
      return Layout::kByteMin;
    case DType::kQ5_K:
      return Layout::kByteSuper;
    case DType::kQ6_K:
    case DType::kQ3_K:
      return Layout::kByteSigned16;
    case DType::kQ2_K:
      return Layout::kByteSuper16;
    default:
      return Error(ErrorCode::kUnsupported, "no matrix product for weights of type {}",
                   Info(dtype).name);
  }
}

}  // namespace

Layout BlockLayoutOf(DType dtype) {
  return LayoutFor(dtype, false, MatmulPrecision::kFast, PlainKernels()).value();
}

namespace {

uint16_t Bf16Bits(DType dtype, const std::byte* element) {
  if (dtype == DType::kBF16) {
    uint16_t bits;
    std::memcpy(&bits, element, sizeof(bits));
    return bits;
  }
  const uint8_t byte = static_cast<uint8_t>(*element);
  return FloatToBf16(dtype == DType::kF8E4M3 ? F8E4M3ToFloat(byte) : F8E5M2ToFloat(byte));
}

void PackExactBlocks(DType dtype, const std::byte* source, int64_t k, int row, std::byte* tile) {
  const Layout layout = BlockLayoutOf(dtype);
  const DTypeInfo& info = Info(dtype);
  float* out = reinterpret_cast<float*>(tile);
  for (int64_t column = 0; column < k; column += info.block_elements) {
    RowBlock block;
    float values[kSuperBlock];
    DecodeBlock(dtype, source + column / info.block_elements * info.block_bytes, &block);
    DequantizeRowBlock(layout, block, values);
    for (int i = 0; i < info.block_elements; ++i) out[(column + i) * kTileRows + row] = values[i];
  }
}

// One row of a piece: where its first column lies, and which weights of the whole matrix they are.
struct SourceRow {
  const MatrixPiece& piece;
  int64_t row;             // of the whole matrix
  const std::byte* bytes;  // at col_begin

  DType dtype() const { return piece.weights.dtype; }
  // The scale of packed column `column`.
  float Scale(int64_t column) const { return piece.scales.At(row, piece.col_begin + column); }
};

// F4 and F8 under scales of their own, dequantised.
void PackExactScaled(const SourceRow& source, int64_t k, int row, std::byte* tile) {
  float* out = reinterpret_cast<float*>(tile);
  for (int64_t i = 0; i < k; ++i) {
    float code;
    if (source.dtype() == DType::kF4E2M1) {
      const uint8_t byte = static_cast<uint8_t>(source.bytes[i / 2]);
      code = kF4E2M1Values[i % 2 == 0 ? byte & 0xF : byte >> 4];
    } else {
      code = F8E4M3ToFloat(static_cast<uint8_t>(source.bytes[i]));
    }
    out[i * kTileRows + row] = code * source.Scale(i);
  }
}

void PackF8Row(const SourceRow& source, int64_t k, int row, std::byte* tile) {
  float* scales = reinterpret_cast<float*>(tile);
  std::byte* codes = tile + CodesOffset(InfoOf(Layout::kF8), AlignUp<int64_t>(k, kBlock));
  for (int64_t i = 0; i < k; ++i) codes[i * kTileRows + row] = source.bytes[i];
  for (int64_t i = k; i < AlignUp<int64_t>(k, kBlock); ++i) {
    codes[i * kTileRows + row] = std::byte{0};
  }
  for (int64_t b = 0; b * kBlock < k; ++b) {
    scales[b * kTileRows + row] = source.Scale(b * kBlock);
  }
}

// MXFP4 whose byte holds neighbours, and whose scales are a tensor of their own.
void PackF4Row(const SourceRow& source, int64_t k, int row, std::byte* tile) {
  for (int64_t unit = 0; unit < k / kBlock; ++unit) {
    RowBlock block;
    // The table holds doubled values, so the scale is half: exact in bf16.
    block.d = FloatToBf16(source.Scale(unit * kBlock) * 0.5f);
    for (int i = 0; i < kBlock / 2; ++i) {
      const uint8_t byte = static_cast<uint8_t>(source.bytes[unit * kBlock / 2 + i]);
      block.codes[2 * i] = byte & 0xF;
      block.codes[2 * i + 1] = byte >> 4;
    }
    StoreRowBlock(Layout::kNibbleMxfp4, tile, k, row, unit, block);
  }
}

// One row of `k` elements into row `row` of a tile.
void PackRow(const SourceRow& source, Layout layout, int64_t k, int row, std::byte* tile) {
  const DType dtype = source.dtype();
  const std::byte* bytes = source.bytes;
  const DTypeInfo& info = Info(dtype);
  uint16_t* words = reinterpret_cast<uint16_t*>(tile);
  switch (layout) {
    case Layout::kF32:
      if (!source.piece.scales.empty()) return PackExactScaled(source, k, row, tile);
      if (IsBlockType(dtype)) return PackExactBlocks(dtype, bytes, k, row, tile);
      for (int64_t i = 0; i < k; ++i) {
        std::memcpy(tile + (i * kTileRows + row) * 4, bytes + i * 4, 4);
      }
      return;
    case Layout::kF16:
      for (int64_t i = 0; i < k; ++i) std::memcpy(words + i * kTileRows + row, bytes + i * 2, 2);
      return;
    case Layout::kBf16:
      for (int64_t i = 0; i < k; ++i) {
        words[i * kTileRows + row] = Bf16Bits(dtype, bytes + i * info.block_bytes);
      }
      return;
    case Layout::kBf16Dot:
      for (int64_t i = 0; i < k; ++i) {
        words[i / 2 * 2 * kTileRows + 2 * row + i % 2] =
            Bf16Bits(dtype, bytes + i * info.block_bytes);
      }
      return;
    case Layout::kF8:
      return PackF8Row(source, k, row, tile);
    default:
      if (dtype == DType::kF4E2M1) return PackF4Row(source, k, row, tile);
      for (int64_t unit = 0; unit < k / info.block_elements; ++unit) {
        RowBlock block;
        DecodeBlock(dtype, bytes + unit * info.block_bytes, &block);
        StoreRowBlock(layout, tile, k, row, unit, block);
      }
  }
}

// The scales that the layouts of a CPU can hold.
Status CheckScales(const MatrixPiece& piece) {
  const BlockScales& scales = piece.scales;
  const DType dtype = piece.weights.dtype;
  if (scales.empty()) {
    if (dtype != DType::kF4E2M1) return OkStatus();
    return Error(ErrorCode::kUnsupported, "F4 weights without scales");
  }
  const DType type = scales.values.dtype;
  const Shape& shape = piece.weights.shape;
  const bool f8 = dtype == DType::kF8E4M3 &&
                  (type == DType::kF32 || type == DType::kBF16 || type == DType::kF8E8M0) &&
                  (scales.cols % kBlock == 0 || scales.cols >= shape[1]);
  const bool f4 = dtype == DType::kF4E2M1 && type == DType::kF8E8M0 && scales.rows == 1 &&
                  scales.cols == kBlock && shape[1] % kBlock == 0;
  if (scales.rows < 1 || scales.cols < 1 || (!f8 && !f4)) {
    return Error(ErrorCode::kUnsupported, "{} weights under {} scales for blocks of {} x {}",
                 Info(dtype).name, Info(type).name, scales.rows, scales.cols);
  }
  if (piece.col_begin % kBlock != 0) {
    return Error(ErrorCode::kInvalidArgument, "columns from {} of {} cut a block of {} columns",
                 piece.col_begin, shape.ToString(), kBlock);
  }
  if (f4 && piece.col_end % kBlock != 0) {
    return Error(ErrorCode::kInvalidArgument, "columns to {} of {} cut a block of {} columns",
                 piece.col_end, shape.ToString(), kBlock);
  }
  return OkStatus();
}

void PackPiece(const MatrixPiece& piece, Layout layout, int64_t k, std::byte* tiles) {
  const DType dtype = piece.weights.dtype;
  const int64_t source_stride = RowBytes(dtype, piece.weights.shape[1]);
  const std::byte* source =
      piece.weights.data + piece.row_begin * source_stride + RowBytes(dtype, piece.col_begin);
  const int64_t n = piece.num_rows();
  const int64_t tile_bytes = TileBytes(layout, k);
  for (int64_t first = 0; first < n; first += kTileRows) {
    std::byte* tile = tiles + first / kTileRows * tile_bytes;
    const int rows = static_cast<int>(std::min<int64_t>(kTileRows, n - first));
    if (rows < kTileRows) std::memset(tile, 0, static_cast<size_t>(tile_bytes));
    for (int row = 0; row < rows; ++row) {
      const int64_t index = (first + row) * piece.row_step;
      PackRow({piece, piece.row_begin + index, source + index * source_stride}, layout, k, row,
              tile);
    }
    // The column that pads an odd K of the bf16 dot.
    if (layout == Layout::kBf16Dot && k % 2 != 0) {
      uint16_t* last = reinterpret_cast<uint16_t*>(tile) + (k / 2) * 2 * kTileRows;
      for (int row = 0; row < kTileRows; ++row) last[2 * row + 1] = 0;
    }
  }
}

}  // namespace

Result<PackedMatrix> PackMatrixFor(const Kernels& kernels, Device& device,
                                   std::span<const MatrixPiece> pieces, MatmulPrecision precision) {
  if (pieces.empty()) return Error(ErrorCode::kInvalidArgument, "a matrix without pieces");
  PackedMatrix packed;
  packed.k = pieces[0].col_end - pieces[0].col_begin;
  packed.source_dtype = pieces[0].weights.dtype;
  int64_t bytes = 0;
  for (const MatrixPiece& piece : pieces) {
    RETURN_IF_ERROR(CheckPiece(piece, packed.k));
    RETURN_IF_ERROR(CheckScales(piece));
    ASSIGN_OR_RETURN(const Layout layout,
                     LayoutFor(piece.weights.dtype, !piece.scales.empty(), precision, kernels));
    const int64_t n = piece.num_rows();
    packed.parts.push_back({.n = n, .offset = bytes, .layout = static_cast<int32_t>(layout)});
    packed.n += n;
    bytes += CeilDiv<int64_t>(n, kTileRows) * TileBytes(layout, packed.k);
  }
  ASSIGN_OR_RETURN(packed.storage,
                   Buffer::Allocate(device, static_cast<size_t>(bytes + kReadAheadBytes)));
  for (size_t i = 0; i < pieces.size(); ++i) {
    const PackedPart& part = packed.parts[i];
    PackPiece(pieces[i], static_cast<Layout>(part.layout), packed.k,
              packed.storage.data() + part.offset);
  }
  return packed;
}

}  // namespace hayate::ops::matmul

namespace hayate::ops {

void UnpackRow(const PackedMatrix& w, int64_t row, float* out) {
  CHECK(row >= 0 && row < w.n) << row << " of " << w.n;
  size_t index = 0;
  for (; row >= w.parts[index].n; ++index) row -= w.parts[index].n;
  const PackedPart& part = w.parts[index];
  const matmul::Layout layout = static_cast<matmul::Layout>(part.layout);
  const int lane = static_cast<int>(row % matmul::kTileRows);
  const std::byte* tile =
      w.storage.data() + part.offset + row / matmul::kTileRows * matmul::TileBytes(layout, w.k);
  const uint16_t* words = reinterpret_cast<const uint16_t*>(tile);
  constexpr int kRows = matmul::kTileRows;
  switch (layout) {
    case matmul::Layout::kF32:
      for (int64_t i = 0; i < w.k; ++i) {
        out[i] = reinterpret_cast<const float*>(tile)[i * kRows + lane];
      }
      return;
    case matmul::Layout::kF16:
      for (int64_t i = 0; i < w.k; ++i) out[i] = F16ToFloat(words[i * kRows + lane]);
      return;
    case matmul::Layout::kBf16:
      for (int64_t i = 0; i < w.k; ++i) out[i] = Bf16ToFloat(words[i * kRows + lane]);
      return;
    case matmul::Layout::kBf16Dot:
      for (int64_t i = 0; i < w.k; ++i) {
        out[i] = Bf16ToFloat(words[i / 2 * 2 * kRows + 2 * lane + i % 2]);
      }
      return;
    case matmul::Layout::kF8: {
      const float* scales = reinterpret_cast<const float*>(tile);
      const std::byte* codes =
          tile + matmul::CodesOffset(matmul::InfoOf(layout), AlignUp<int64_t>(w.k, matmul::kBlock));
      for (int64_t i = 0; i < w.k; ++i) {
        out[i] = F8E4M3ToFloat(static_cast<uint8_t>(codes[i * kRows + lane])) *
                 scales[i / matmul::kBlock * kRows + lane];
      }
      return;
    }
    default:
      break;
  }
  const int64_t unit_columns = matmul::InfoOf(layout).unit;
  for (int64_t unit = 0; unit < w.k / unit_columns; ++unit) {
    matmul::RowBlock block;
    matmul::LoadRowBlock(layout, tile, w.k, lane, unit, &block);
    matmul::DequantizeRowBlock(layout, block, out + unit * unit_columns);
  }
}

}  // namespace hayate::ops
