#include "ops/moe/sm90/grouped_product.h"

#include <algorithm>

#include "base/align.h"
#include "base/error.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int32_t kSimpleTile = 32;

// Bytes of a row of scales that a row of codes goes with, where a matrix is halved by rows.
int64_t HalfScales(const PartFormat& format, int64_t rows, int64_t k) {
  constexpr int64_t kFloat = sizeof(float);
  switch (format.layout) {
    case MatrixLayout::kFp8Block:
      return rows / kScaleColumns * kFloat;
    case MatrixLayout::kFp8Vector:
      return rows * kFloat;
    case MatrixLayout::kMxfp4:
      return rows * (k / 32);
    default:
      return 0;
  }
}

bool IsGrouped(MatrixLayout layout) { return layout != MatrixLayout::kStored; }

// Whether the kernels can read `w` as halves (gate_up) or as a whole.
bool IsReadable(const PackedMatrix& w, size_t parts) {
  if (w.parts.size() > parts) return false;
  for (const PackedPart& part : w.parts) {
    if (part.layout != w.parts[0].layout || !IsGrouped(PartFormat::Of(part).layout)) return false;
    if (w.parts.size() == 2 && part.n != w.n / 2) return false;
  }
  const bool blocks = PartFormat::Of(w.parts[0]).layout == MatrixLayout::kFp8Block;
  return parts == 1 || w.parts.size() == 2 || !blocks || w.n / 2 % kScaleColumns == 0;
}

bool AreAlike(const PackedMatrix& a, const PackedMatrix& b) {
  return a.n == b.n && a.k == b.k &&
         std::ranges::equal(a.parts, b.parts, [](const PackedPart& p, const PackedPart& q) {
           return p.n == q.n && p.offset == q.offset && p.layout == q.layout;
         });
}

}  // namespace

GroupedPairs EveryPair(int64_t num_tokens, int64_t num_experts, int32_t tile_tokens) {
  return {
      .max_tiles = static_cast<int32_t>(num_experts * CeilDiv<int64_t>(num_tokens, tile_tokens)),
      .tile_tokens = tile_tokens,
      .num_tokens = static_cast<int32_t>(num_tokens),
      .num_experts = static_cast<int32_t>(num_experts)};
}

ExpertMatrix MatrixOf(const PackedMatrix& w, const std::byte* const* storage, int64_t half) {
  const PackedPart& first = w.parts.front();
  const PartFormat format = PartFormat::Of(first);
  ExpertMatrix matrix = {.storage = storage, .layout = format.layout, .n = w.n, .k = w.k};
  matrix.codes[0] = first.offset;
  matrix.scales[0] = first.offset + ScalesOffset(format, first.n, w.k);
  matrix.scale_stride = BlockScaleStride(first.n);
  if (w.parts.size() > 1) {
    const PackedPart& second = w.parts[1];
    matrix.codes[1] = second.offset;
    matrix.scales[1] = second.offset + ScalesOffset(format, second.n, w.k);
  } else {
    matrix.codes[1] = first.offset + CodeBytes(format, half, w.k);
    matrix.scales[1] = matrix.scales[0] + HalfScales(format, half, w.k);
  }
  return matrix;
}

Status CheckAlike(const std::vector<PackedMatrix>& matrices, size_t parts) {
  for (const PackedMatrix& matrix : matrices) {
    if (AreAlike(matrix, matrices[0]) && IsReadable(matrix, parts)) continue;
    return Error(ErrorCode::kUnsupported,
                 "no grouped product on CUDA for experts [{}, {}] of type {} that differ, or are "
                 "not of a plain, fp8 or MXFP4 type",
                 matrix.n, matrix.k, Info(matrix.source_dtype).name);
  }
  return OkStatus();
}

int32_t TileTokens(const ExpertMatrix& w, DType x, int64_t x_stride, int64_t num_pairs,
                   int64_t num_experts) {
  if (!HasTensorCoreProduct(w, x, x_stride)) return kSimpleTile;
  // Smaller than the average group, so that most tiles are full; a tile more is read from the
  // cache.
  const int64_t average = num_pairs / num_experts;
  return average < 8 ? 8 : average < 24 ? 16 : average < 48 ? 32 : 64;
}

bool HasTensorCoreProduct(const ExpertMatrix& w, DType x, int64_t x_stride) {
  if (x != DType::kBF16 || x_stride % 8 != 0) return false;
  switch (w.layout) {
    case MatrixLayout::kBf16:
      return w.k % 8 == 0;
    case MatrixLayout::kFp8Block:
    case MatrixLayout::kFp8Vector:
      return w.k % 16 == 0;
    case MatrixLayout::kMxfp4:
      return w.k % 32 == 0;
    default:
      return false;
  }
}

void GroupedProduct(Stream stream, const GroupedProductArgs& args) {
  if (args.pairs.max_tiles == 0) return;
  if (!HasTensorCoreProduct(args.w, args.x.dtype, args.x_stride))
    return GroupedSimple(stream, args);
  switch (args.w.layout) {
    case MatrixLayout::kBf16:
      return GroupedBf16(stream, args);
    case MatrixLayout::kMxfp4:
      return GroupedMxfp4(stream, args);
    default:
      return GroupedFp8(stream, args);
  }
}

}  // namespace hayate::ops::sm90
