#include "ops/matmul/sm90/gemm.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/align.h"
#include "base/check.h"
#include "base/error.h"
#include "ops/detail/sm90/tensor_map.h"
#include "ops/matmul/sm90/fitted_gemm.h"
#include "ops/matmul/sm90/gemm_variants.h"
#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {
namespace {

int64_t BlockK(Scaling scaling) { return scaling == Scaling::kNone ? 64 : 128; }
int64_t OperandBytes(Scaling scaling) { return scaling == Scaling::kNone ? 2 : 1; }
DType OperandType(Scaling scaling) {
  return scaling == Scaling::kNone ? DType::kBF16 : DType::kF8E4M3;
}

// Tiles of a launch, with those that only fill up a cluster.
int64_t CountTiles(const GemmTiling& tiling, const GemmArgs& args) {
  const int64_t tiles_n = CeilDiv<int64_t>(args.n, tiling.tile_n);
  const int64_t tiles_t = CeilDiv<int64_t>(args.t, tiling.tile_t);
  return AlignUp<int64_t>(tiles_n, tiling.shares_tokens() ? tiling.cluster : 1) *
         AlignUp<int64_t>(tiles_t, tiling.shares_tokens() ? 1 : tiling.cluster);
}

int64_t CountBlocks(const GemmTiling& tiling, int num_multiprocessors) {
  return AlignDown<int64_t>(num_multiprocessors, int64_t{tiling.cluster} * tiling.parts);
}
int64_t BlocksOfK(const GemmArgs& args) { return CeilDiv<int64_t>(args.k, BlockK(args.scaling)); }
// Whether single warps multiply.
bool IsSkinny(Scaling scaling, const GemmTiling& tiling) {
  return scaling == Scaling::kNone && tiling.tile_t <= kMaxSkinnyTokens && !tiling.in_order;
}
// Whether every part has a stage of K.
bool HasParts(const GemmVariant& variant, const GemmArgs& args) {
  return variant.tiling.parts == 1 || BlocksOfK(args) > variant.boxes.blocks;
}
// Whether tiles in parts may be chosen: one row of them, not for so few tokens that another tile
// holds them, and not where pairs have to wait for others.
bool MayTakeParts(const GemmVariant& variant, const GemmArgs& args, int num_multiprocessors) {
  const GemmTiling& tiling = variant.tiling;
  if (tiling.parts == 1) return true;
  const int64_t fewer = tiling.tile_t == 128 ? 64 : kMaxSkinnyTokens;
  return args.t > fewer && args.t <= tiling.tile_t && HasParts(variant, args) &&
         CountTiles(tiling, args) * tiling.parts <= CountBlocks(tiling, num_multiprocessors);
}

// Of a tile: rows of x times rows of w of one block of K that are multiplied in a nanosecond, with
// promotion under kBlock. Narrow tiles read tokens from shared memory as often as products.
double RowsPerNs(Scaling scaling, const GemmTiling& tiling) {
  const bool narrow = tiling.shape == GemmShape::kNarrow;
  switch (scaling) {
    case Scaling::kNone:
      return narrow ? 42 : 47;
    case Scaling::kVector:
      return narrow ? 42 : 55;
    case Scaling::kBlock:
      return narrow ? 34 : tiling.tile_t > tiling.tile_n ? 42 : 35;
  }
  return 0;
}

// Estimated nanoseconds of a launch: waves of tiles, each as slow as the slowest of the tensor
// cores, the memory that brings the weights and the cache that brings the rest. Fitted to what an
// H200 took for the shapes of README.md, where its choices cost 0.6 % over the best ones.
double EstimateNs(const GemmVariant& variant, const GemmArgs& args, int num_multiprocessors) {
  const GemmTiling& tiling = variant.tiling;
  const bool narrow = tiling.shape == GemmShape::kNarrow;
  const bool halves = tiling.parts > 1;
  const double memory_bytes_per_ns = halves ? 33.5 : 31.5;  // of a multiprocessor's share
  const double cache_bytes_per_ns = !narrow ? 100 : halves ? 95 : 50;
  const double least_ns = narrow ? 70 : 0;  // four dependent instructions
  const double tile_ns = narrow || tiling.tile_t > tiling.tile_n ? 2500 : 1300;
  // Tiles of middling width were measured to leave while the ring fills for the next one.
  const bool leaves_hidden = narrow && !halves && args.t > kMaxSkinnyTokens &&
                             tiling.tile_t == 64 && tiling.tile_n > 64 && tiling.tile_n < 128;
  const double next_tile_ns = leaves_hidden ? 500 : tile_ns;
  const double launch_ns = narrow ? 2000 : 2500;
  const double exchange_ns = halves && tiling.tile_t > 64 ? 1500 : 0;
  const double rows_per_ns = RowsPerNs(args.scaling, tiling);

  const int64_t tiles_t = CeilDiv<int64_t>(args.t, tiling.tile_t);
  const int64_t waves = CeilDiv<int64_t>(CountTiles(tiling, args) * tiling.parts,
                                         CountBlocks(tiling, num_multiprocessors));
  const double rows_n = tiling.tile_n, rows_t = tiling.tile_t;
  const double tensor_ns = rows_n * std::max(rows_t, 64.0) / rows_per_ns;
  const double memory_ns = rows_n * kRowBytes / memory_bytes_per_ns / static_cast<double>(tiles_t);
  const double cached_rows = rows_n / (tiling.shares_tokens() ? 1 : tiling.cluster) +
                             rows_t / (tiling.shares_tokens() ? tiling.cluster : 1);
  const double cache_ns = cached_rows * kRowBytes / cache_bytes_per_ns;
  const double block_ns = std::max({tensor_ns, memory_ns, cache_ns, least_ns});
  const auto blocks = static_cast<double>(CeilDiv<int64_t>(BlocksOfK(args), tiling.parts));
  // Where two rows of tiles would do as well as one of twice the tokens, one was measured faster.
  const double again_ns =
      narrow && args.scaling == Scaling::kBlock ? 50 * static_cast<double>(tiles_t - 1) : 0;
  return static_cast<double>(waves) * (blocks * block_ns + next_tile_ns + exchange_ns) + tile_ns -
         next_tile_ns + again_ns + launch_ns;
}

// Whether a tile of at most kMaxDeferredTokens is asked for.
bool Defers(const GemmArgs& args) { return args.x_norm.pending() || args.residual != nullptr; }
bool CanDefer(const GemmTiling& tiling) {
  return tiling.shape == GemmShape::kNarrow && tiling.tile_t <= kMaxDeferredTokens;
}

// How the copy engine finds blocks of K of an operand [rows, K]: boxes of 128 bytes of `box_rows`
// rows, of `blocks` blocks one behind the other. A last block that is not whole ends where K does,
// so the columns are one axis then, and a box has one block.
struct BlockAxes {
  int64_t row_bytes, columns, count, box_columns, box_blocks;

  BlockAxes(const GemmArgs& args, int64_t blocks) {
    const int64_t width = BlockK(args.scaling);
    const bool ragged = args.k % width != 0;
    row_bytes = args.k * OperandBytes(args.scaling);
    columns = ragged ? args.k : width;
    count = ragged ? 1 : args.k / width;
    box_columns = width;
    box_blocks = ragged ? 1 : blocks;
  }
};

Status MapOperand(const GemmArgs& args, const void* data, int64_t rows, int64_t box_rows,
                  int64_t blocks, CUtensorMap* map) {
  const BlockAxes axes(args, blocks);
  const int64_t extents[] = {axes.columns, rows, axes.count};
  const int64_t strides[] = {axes.row_bytes, kRowBytes};
  const int64_t box[] = {axes.box_columns, box_rows, axes.box_blocks};
  return MakeTensorMap({.data = data,
                        .dtype = OperandType(args.scaling),
                        .extents = extents,
                        .strides = strides,
                        .box = box},
                       map);
}

// w whose rows of both halves are read in turn.
Status MapGated(const GemmArgs& args, int64_t box_rows, int64_t blocks, CUtensorMap* map) {
  const BlockAxes axes(args, blocks);
  const int64_t half = args.n / 2;
  const int64_t extents[] = {axes.columns, 2, half, axes.count};
  const int64_t strides[] = {half * axes.row_bytes, axes.row_bytes, kRowBytes};
  const int64_t box[] = {axes.box_columns, 2, box_rows / 2, axes.box_blocks};
  return MakeTensorMap({.data = args.w,
                        .dtype = OperandType(args.scaling),
                        .extents = extents,
                        .strides = strides,
                        .box = box},
                       map);
}

// Scales [blocks of K, stride] under kBlock.
Status MapScales(const float* scales, int64_t stride, int64_t k_blocks, int64_t box_columns,
                 int64_t blocks, CUtensorMap* map) {
  const int64_t extents[] = {stride, k_blocks}, strides[] = {stride * int64_t{sizeof(float)}};
  const int64_t box[] = {box_columns, blocks};
  return MakeTensorMap({.data = scales,
                        .dtype = DType::kF32,
                        .extents = extents,
                        .strides = strides,
                        .box = box,
                        .swizzle = false},
                       map);
}

// Whether a block of a cluster fetches some of a tile's rows of x, and not some of the blocks of K.
bool SplitsRows(const GemmVariant& variant) { return variant.boxes.x_rows < variant.tiling.tile_t; }

// Rows of x that the copy engine brings. Those that are not there would take it longer than others:
// so as many as there are, and for instructions of a warpgroup whole groups of eight a box.
int64_t XRows(const GemmArgs& args, const GemmVariant& variant) {
  const GemmTiling& tiling = variant.tiling;
  if (args.t > tiling.tile_t) return tiling.tile_t;
  if (IsSkinny(args.scaling, tiling)) return args.t;
  return AlignUp<int64_t>(args.t, SplitsRows(variant) ? 8 * tiling.cluster : 8);
}

Status MapNarrow(const GemmArgs& args, const GemmVariant& variant, GemmParams* params) {
  const GemmBoxes& boxes = variant.boxes;
  if (args.gated) {
    RETURN_IF_ERROR(MapGated(args, boxes.w_rows, boxes.blocks, &params->w_map));
  } else {
    RETURN_IF_ERROR(MapOperand(args, args.w, args.n, boxes.w_rows, boxes.blocks, &params->w_map));
  }
  const int64_t parts = SplitsRows(variant) ? variant.tiling.cluster : 1;
  RETURN_IF_ERROR(
      MapOperand(args, args.x, args.t, params->x_rows / parts, boxes.x_blocks, &params->x_map));
  if (args.scaling != Scaling::kBlock) return OkStatus();
  RETURN_IF_ERROR(MapScales(args.x_scale, args.x_scale_stride, params->k_blocks,
                            variant.tiling.tile_t, boxes.blocks, &params->x_scale_map));
  return MapScales(args.w_scale, args.w_scale_stride, params->k_blocks, kScalesW, boxes.blocks,
                   &params->w_scale_map);
}

Status MapWide(const GemmArgs& args, const GemmVariant& variant, GemmParams* params) {
  const DType dtype = OperandType(args.scaling);
  const int64_t row_bytes = args.k * OperandBytes(args.scaling);
  RETURN_IF_ERROR(MakeMatrixMap(args.w, dtype, args.n, args.k, row_bytes, variant.boxes.w_rows,
                                &params->w_map));
  RETURN_IF_ERROR(MakeMatrixMap(args.x, dtype, args.t, args.k, row_bytes, variant.boxes.x_rows,
                                &params->x_map));
  if (!params->bulk_stores) return OkStatus();
  return MakeMatrixMap(args.out, DType::kBF16, args.t, args.n,
                       args.out_stride * Info(DType::kBF16).block_bytes, kStoreRows,
                       &params->out_map);
}

const GemmVariant& Find(Scaling scaling, const GemmTiling& tiling) {
  const auto variants = VariantsOf(scaling, tiling.shape);
  const auto found = std::find_if(variants.begin(), variants.end(),
                                  [&](const GemmVariant& v) { return v.tiling == tiling; });
  CHECK(found != variants.end()) << "no tiling " << tiling.tile_n << " x " << tiling.tile_t;
  return *found;
}

}  // namespace

int NumMultiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

std::span<const GemmVariant> VariantsOf(Scaling scaling, GemmShape shape) {
  const bool narrow = shape == GemmShape::kNarrow;
  switch (scaling) {
    case Scaling::kNone:
      return narrow ? Bf16Narrow() : Bf16Wide();
    case Scaling::kBlock:
      return narrow ? Fp8BlockNarrow() : Fp8BlockWide();
    case Scaling::kVector:
      return narrow ? Fp8VectorNarrow() : Fp8VectorWide();
  }
  return {};
}

bool GemmSupports(Scaling scaling, int64_t k) {
  constexpr int64_t kRowAlignment = 16;  // bytes, of the bulk copy engine
  return k > 0 && k * OperandBytes(scaling) % kRowAlignment == 0;
}

GemmTiling ChooseGemm(const GemmArgs& args, int num_multiprocessors) {
  constexpr int64_t kMaxNarrow = 512;
  const GemmVariant* best = nullptr;
  double best_ns = 0;
  for (const GemmShape shape : {GemmShape::kNarrow, GemmShape::kWide}) {
    if (shape == GemmShape::kNarrow && args.t > kMaxNarrow) continue;
    for (const GemmVariant& variant : VariantsOf(args.scaling, shape)) {
      const bool fixed = args.order == SumOrder::kFixed;
      if (fixed ? !SumsInOrder(args.scaling, variant.tiling) : variant.tiling.in_order) continue;
      if (Defers(args) && !CanDefer(variant.tiling)) continue;
      if (!MayTakeParts(variant, args, num_multiprocessors)) continue;
      const double ns = EstimateNs(variant, args, num_multiprocessors);
      if (best != nullptr && ns >= best_ns) continue;
      best = &variant;
      best_ns = ns;
    }
  }
  return best->tiling;
}

GemmTiling ChooseGemm(const GemmArgs& args) { return ChooseGemm(args, NumMultiprocessors()); }

double EstimateGemmNs(const GemmArgs& args, const GemmTiling& tiling, int num_multiprocessors) {
  return EstimateNs(Find(args.scaling, tiling), args, num_multiprocessors);
}

bool SumsInOrder(Scaling scaling, const GemmTiling& tiling) {
  if (tiling.parts > 1) return false;
  if (tiling.in_order || tiling.shape == GemmShape::kWide) return true;
  return (tiling.tile_n > kMaxSplitTileN || tiling.tile_t > kMaxSplitTileT) &&
         !IsSkinny(scaling, tiling);
}

bool CanGate(const GemmTiling& tiling) { return tiling.shape == GemmShape::kNarrow; }

int64_t SquareParts(const GemmTiling& tiling, int64_t n) {
  const bool split = tiling.tile_n <= kMaxSplitTileN && !tiling.in_order;
  return CeilDiv<int64_t>(n, tiling.tile_n) * (split ? 1 : kConsumerGroups);
}

bool OwnTilesWin(int64_t t) {
  constexpr int64_t kMaxTokens = 128;
  return t <= kMaxTokens;
}

void GemmWithTiling(Stream stream, const GemmArgs& args, const GemmTiling& tiling) {
  if (args.t == 0 || args.n == 0) return;
  DCHECK(!args.gated || (args.scaling == Scaling::kNone && CanGate(tiling)));
  DCHECK(!Defers(args) || (args.scaling == Scaling::kNone && CanDefer(tiling)));
  const GemmVariant& variant = Find(args.scaling, tiling);
  const bool narrow = tiling.shape == GemmShape::kNarrow;
  const int64_t columns = args.gated ? args.n / 2 : args.n;  // of out
  const int64_t out_bytes = Info(args.out_dtype).block_bytes;
  GemmParams params{
      .out = args.out,
      .bias = args.bias,
      .x_scale = args.x_scale,
      .w_scale = args.w_scale,
      .out_stride = args.out_stride,
      .x_scale_stride = args.x_scale_stride,
      .w_scale_stride = args.w_scale_stride,
      .t = static_cast<int32_t>(args.t),
      .n = static_cast<int32_t>(args.n),
      .k_blocks = static_cast<int32_t>(BlocksOfK(args)),
      .ragged_k = args.k % BlockK(args.scaling) != 0,
      .tiles_n = static_cast<int32_t>(CeilDiv<int64_t>(args.n, tiling.tile_n)),
      .tiles_t = static_cast<int32_t>(CeilDiv<int64_t>(args.t, tiling.tile_t)),
      .x_rows = static_cast<int32_t>(XRows(args, variant)),
      .out_f32 = args.out_dtype == DType::kF32,
      // The copy engine writes 16 bytes at a time, past the last column where that is within them.
      .bulk_stores = !narrow && args.out_dtype == DType::kBF16 && columns % 8 == 0 &&
                     args.out_stride * out_bytes % 16 == 0 &&
                     reinterpret_cast<uintptr_t>(args.out) % 16 == 0,
      .wide_stores = columns % 8 == 0 && args.out_stride * out_bytes % 16 == 0 &&
                     reinterpret_cast<uintptr_t>(args.out) % 16 == 0,
      .gated = args.gated,
      .x_squares = args.x_norm.squares,
      .x_parts = args.x_norm.parts,
      .x_columns = static_cast<float>(args.x_norm.columns),
      .x_eps = args.x_norm.eps,
      .residual = args.residual,
      .norm_weight = args.norm_weight,
      .squares = args.squares,
      .parts = static_cast<int32_t>(SquareParts(tiling, args.n))};
  DCHECK(HasParts(variant, args));
  Status mapped = narrow ? MapNarrow(args, variant, &params) : MapWide(args, variant, &params);
  if (!mapped.ok()) return stream.device->Fail(std::move(mapped));
  // A pair in two parts computes one tile; others go on to the next as long as there are any.
  int64_t blocks = CountTiles(tiling, args) * tiling.parts;
  if (tiling.parts == 1) blocks = std::min(blocks, CountBlocks(tiling, NumMultiprocessors()));
  variant.launch(stream, params, static_cast<int>(blocks), args.w_changes);
}

void Gemm(Stream stream, const GemmArgs& args) {
  const GemmTiling tiling = ChooseGemm(args);
  if (const auto fitted = ChooseFitted(args, tiling)) return FittedGemm(stream, args, *fitted);
  GemmWithTiling(stream, args, tiling);
}

}  // namespace hayate::ops::sm90
