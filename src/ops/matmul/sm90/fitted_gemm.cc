#include "ops/matmul/sm90/fitted_gemm.h"

#include <algorithm>

#include "base/align.h"
#include "base/check.h"
#include "base/error.h"
#include "ops/detail/sm90/tensor_map.h"
#include "ops/matmul/sm90/fitted_config.cuh"
#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {
namespace {

int64_t OperandBytes(Scaling scaling) { return scaling == Scaling::kNone ? 2 : 1; }
DType OperandType(Scaling scaling) {
  return scaling == Scaling::kNone ? DType::kBF16 : DType::kF8E4M3;
}
int64_t BlocksOfK(const GemmArgs& args) {
  return CeilDiv<int64_t>(args.k * OperandBytes(args.scaling), kRowBytes);
}

// Clusters that the tiles make, with those that only fill one up.
int64_t CountClusters(const FittedTiling& tiling, const GemmArgs& args) {
  return CeilDiv<int64_t>(args.n, int64_t{tiling.tile_n} * tiling.cluster) *
         CeilDiv<int64_t>(args.t, tiling.tile_t);
}

// Estimated nanoseconds of a launch: waves of tiles, each as slow as the slowest of the tensor
// cores, the shared memory that feeds them and the cache. Fitted to what an H200 took for the fp8
// shapes of README.md at 160 to 768 tokens; with the choice between these tiles and the others it
// costs 0.9 % over the best ones.
double EstimateNs(const FittedTiling& tiling, const GemmArgs& args, int num_multiprocessors) {
  constexpr double kClocksPerNs = 1.7;
  constexpr double kSharedBytesPerClock = 128, kCacheBytesPerClock = 48;
  constexpr double kTileNs = 950, kTileNsPerToken = 3.7, kExchangeNs = 2750, kLaunchNs = 725;
  const double n = tiling.tile_n, t = tiling.tile_t;
  const double tensor = n * t / 32;  // clocks of a block of K
  const double shared = (n / 64 * 4 * (64 + t) * 32 + (n + t) * kRowBytes) / kSharedBytesPerClock;
  const double cache = (n + t / tiling.cluster) * kRowBytes / kCacheBytesPerClock;
  const double block_ns = std::max({tensor, shared, cache}) / kClocksPerNs;
  const auto blocks = static_cast<double>(CeilDiv<int64_t>(BlocksOfK(args), tiling.parts));
  const auto waves = static_cast<double>(CeilDiv<int64_t>(
      CountClusters(tiling, args), num_multiprocessors / tiling.blocks_of_cluster()));
  const double tile_ns = kTileNs + kTileNsPerToken * t + (tiling.parts > 1 ? kExchangeNs : 0);
  return waves * (blocks * block_ns + tile_ns) + kLaunchNs;
}

bool MayFit(const GemmArgs& args) {
  constexpr int64_t kFew = 128, kMany = 768;
  return args.t > kFew && args.t <= kMany && args.order != SumOrder::kFixed;
}

const FittedVariant& Find(Scaling scaling, const FittedTiling& tiling) {
  const auto variants = FittedVariants(scaling);
  const auto found = std::find_if(variants.begin(), variants.end(),
                                  [&](const FittedVariant& v) { return v.tiling == tiling; });
  CHECK(found != variants.end()) << "no tiling " << tiling.tile_n << " x " << tiling.tile_t;
  return *found;
}

constexpr int64_t kGateRows = 8;  // of a half of w, in turns

// w whose rows of both halves are read in turns of kGateRows.
Status MapGated(const GemmArgs& args, int64_t tile_n, CUtensorMap* map) {
  const int64_t bytes = OperandBytes(args.scaling), row_bytes = args.k * bytes, half = args.n / 2;
  const int64_t extents[] = {args.k, kGateRows, 2, half / kGateRows};
  const int64_t strides[] = {row_bytes, half * row_bytes, kGateRows * row_bytes};
  const int64_t box[] = {kRowBytes / bytes, kGateRows, 2, tile_n / (2 * kGateRows)};
  return MakeTensorMap({.data = args.w,
                        .dtype = OperandType(args.scaling),
                        .extents = extents,
                        .strides = strides,
                        .box = box},
                       map);
}

Status MapOut(const GemmArgs& args, int64_t box_tokens, CUtensorMap* map) {
  constexpr int64_t kColumns = 64;  // of a group
  const int64_t halves = args.gated ? 2 : 1, row_bytes = args.out_stride * 2;
  const int64_t extents[] = {args.n / halves, args.t}, box[] = {kColumns / halves, box_tokens};
  return MakeTensorMap(
      {.data = args.out, .extents = extents, .strides = {&row_bytes, 1}, .box = box}, map);
}

Status MapOperands(const GemmArgs& args, const FittedTiling& tiling, FittedParams* params) {
  const DType dtype = OperandType(args.scaling);
  const int64_t row_bytes = args.k * OperandBytes(args.scaling);
  if (args.gated) {
    RETURN_IF_ERROR(MapGated(args, tiling.tile_n, &params->w_map));
  } else {
    RETURN_IF_ERROR(
        MakeMatrixMap(args.w, dtype, args.n, args.k, row_bytes, tiling.tile_n, &params->w_map));
  }
  RETURN_IF_ERROR(MakeMatrixMap(args.x, dtype, args.t, args.k, row_bytes,
                                tiling.tile_t / tiling.cluster, &params->x_map));
  if (!params->bulk_stores) return OkStatus();
  return MapOut(args, tiling.tile_t / tiling.parts, &params->out_map);
}

// Bulk stores write 16 bytes at a time, past the last column where that is within them.
bool CanStoreBulk(const GemmArgs& args) {
  const int64_t columns = args.gated ? args.n / 2 : args.n;
  return args.out_dtype == DType::kBF16 && columns % 8 == 0 && args.out_stride % 8 == 0 &&
         reinterpret_cast<uintptr_t>(args.out) % 16 == 0;
}

}  // namespace

std::span<const FittedVariant> FittedVariants(Scaling scaling) {
  switch (scaling) {
    case Scaling::kNone:
      return FittedBf16();
    case Scaling::kVector:
      return FittedFp8();
    case Scaling::kBlock:
      break;
  }
  return {};
}

std::optional<FittedTiling> ChooseFitted(const GemmArgs& args, int num_multiprocessors,
                                         double other_ns) {
  if (!MayFit(args)) return {};
  // The estimate of the others is a little low where tokens do not fill their tiles.
  constexpr double kOthersUnderestimated = 1.05;
  std::optional<FittedTiling> best;
  double best_ns = other_ns * kOthersUnderestimated;
  for (const FittedVariant& variant : FittedVariants(args.scaling)) {
    if (variant.tiling.parts > BlocksOfK(args)) continue;
    const double ns = EstimateNs(variant.tiling, args, num_multiprocessors);
    if (ns >= best_ns) continue;
    best = variant.tiling;
    best_ns = ns;
  }
  return best;
}

std::optional<FittedTiling> ChooseFitted(const GemmArgs& args, const GemmTiling& other) {
  if (!MayFit(args)) return {};
  const int multiprocessors = NumMultiprocessors();
  return ChooseFitted(args, multiprocessors, EstimateGemmNs(args, other, multiprocessors));
}

bool CanGateFitted(const GemmArgs& args) {
  return args.n % (2 * kGateRows) == 0 && CanStoreBulk(args);
}

bool FittedBeatsCublasLt(int64_t t) { return (t > 128 && t <= 160) || (t > 256 && t <= 320); }

void FittedGemm(Stream stream, const GemmArgs& args, const FittedTiling& tiling) {
  if (args.t == 0 || args.n == 0) return;
  DCHECK(tiling.parts <= BlocksOfK(args));
  DCHECK(!args.gated || CanGateFitted(args));
  FittedParams params{.out = args.out,
                      .bias = args.bias,
                      .x_scale = args.x_scale,
                      .w_scale = args.w_scale,
                      .out_stride = args.out_stride,
                      .t = static_cast<int32_t>(args.t),
                      .n = static_cast<int32_t>(args.n),
                      .k_blocks = static_cast<int32_t>(BlocksOfK(args)),
                      .tiles_n = static_cast<int32_t>(CeilDiv<int64_t>(args.n, tiling.tile_n)),
                      .tiles_t = static_cast<int32_t>(CeilDiv<int64_t>(args.t, tiling.tile_t)),
                      .out_f32 = args.out_dtype == DType::kF32,
                      .bulk_stores = CanStoreBulk(args),
                      .gated = args.gated,
                      // It is a product, and not a row-wise launch (kMaxTokensBeside).
                      .next_early = args.gated && args.scaling == Scaling::kNone};
  Status mapped = MapOperands(args, tiling, &params);
  if (!mapped.ok()) return stream.device->Fail(std::move(mapped));
  // A cluster in two parts computes one tile; others go on to the next as long as there are any.
  int64_t clusters = CountClusters(tiling, args);
  if (tiling.parts == 1) {
    clusters = std::min<int64_t>(clusters, NumMultiprocessors() / tiling.blocks_of_cluster());
  }
  Find(args.scaling, tiling)
      .launch(stream, params, static_cast<int>(clusters * tiling.blocks_of_cluster()),
              args.w_changes);
}

}  // namespace hayate::ops::sm90
