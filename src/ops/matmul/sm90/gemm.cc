#include "ops/matmul/sm90/gemm.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/align.h"
#include "base/check.h"
#include "base/error.h"
#include "ops/detail/sm90/tensor_map.h"
#include "ops/matmul/sm90/gemm_variants.h"
#include "tensor/cuda/check.h"

namespace hayate::ops::sm90 {
namespace {

// A choice by counted time: waves of tiles times what a tile costs. The unit is the time of one
// feature of a 128-row tile over one stage.
double TokensFirstCost(const GemmVariant& variant, const GemmArgs& args, int blocks) {
  const GemmTiling& tiling = variant.tiling;
  const int64_t tiles_n = CeilDiv<int64_t>(args.n, tiling.tile_n);
  const int64_t groups_t = CeilDiv<int64_t>(args.t, int64_t{tiling.tile_t} * variant.cluster);
  const int64_t waves = CeilDiv<int64_t>(tiles_n * groups_t, blocks / variant.cluster);
  // A wider tile reads less shared memory and cache for each product.
  const double efficiency = tiling.tile_n >= 256 ? 1.0 : tiling.tile_n >= 192 ? 0.97 : 0.92;
  constexpr double kStartStages = 6;  // filling the ring and storing, in stages
  const double stages = static_cast<double>(CeilDiv<int64_t>(args.k, variant.stage_k));
  return static_cast<double>(waves) * (stages + kStartStages) * tiling.tile_n / efficiency;
}

int NumMultiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return std::min<int>(count, kMaxBlocks);
}

const GemmVariant& Find(Scaling scaling, const GemmTiling& tiling) {
  const auto variants = VariantsOf(scaling);
  const auto found = std::find_if(variants.begin(), variants.end(),
                                  [&](const GemmVariant& v) { return v.tiling == tiling; });
  CHECK(found != variants.end()) << "no tiling " << tiling.tile_n << " x " << tiling.tile_t;
  return *found;
}

}  // namespace

std::span<const GemmVariant> VariantsOf(Scaling scaling) {
  switch (scaling) {
    case Scaling::kNone:
      return Bf16Variants();
    case Scaling::kBlock:
      return Fp8BlockVariants();
    case Scaling::kVector:
      return Fp8VectorVariants();
  }
  return {};
}

bool GemmSupports(Scaling scaling, int64_t k) {
  constexpr int64_t kRowAlignment = 16;  // bytes, of the bulk copy engine
  return k > 0 && k * (scaling == Scaling::kNone ? 2 : 1) % kRowAlignment == 0;
}

GemmTiling ChooseGemm(const GemmArgs& args, int num_multiprocessors) {
  constexpr int64_t kMaxWeightsFirst = 128;
  const GemmVariant* best = nullptr;
  double best_cost = 0;
  for (const GemmVariant& variant : VariantsOf(args.scaling)) {
    const GemmTiling& tiling = variant.tiling;
    double cost;
    if (args.t <= kMaxWeightsFirst) {
      if (!tiling.weights_first || tiling.tile_t < args.t || tiling.tile_n != 128) continue;
      cost = tiling.tile_t;
    } else {
      if (tiling.weights_first) continue;
      cost = TokensFirstCost(variant, args, num_multiprocessors);
    }
    if (best == nullptr || cost < best_cost) {
      best = &variant;
      best_cost = cost;
    }
  }
  return best->tiling;
}

int64_t GemmPartialBytes() {
  constexpr int64_t kMaxTile = 128 * 128;
  return kMaxBlocks * kMaxTile * static_cast<int64_t>(sizeof(float));
}

void GemmWithTiling(Stream stream, const GemmArgs& args, const GemmTiling& tiling) {
  if (args.t == 0 || args.n == 0) return;
  const GemmVariant& variant = Find(args.scaling, tiling);
  const bool bf16 = args.scaling == Scaling::kNone;
  const DType dtype = bf16 ? DType::kBF16 : DType::kF8E4M3;
  const int64_t row_bytes = args.k * Info(dtype).block_bytes;
  const int64_t out_bytes = Info(args.out_dtype).block_bytes;
  GemmParams params{.out = args.out,
                    .bias = args.bias,
                    .x_scale = args.x_scale,
                    .w_scale = args.w_scale,
                    .partials = static_cast<float*>(args.partials),
                    .flags = args.flags,
                    .out_stride = args.out_stride,
                    .x_scale_stride = args.x_scale_stride,
                    .t = static_cast<int32_t>(args.t),
                    .n = static_cast<int32_t>(args.n),
                    .k_blocks = static_cast<int32_t>(CeilDiv<int64_t>(args.k, variant.stage_k)),
                    .tiles_n = static_cast<int32_t>(CeilDiv<int64_t>(args.n, tiling.tile_n)),
                    .tiles_t = static_cast<int32_t>(CeilDiv<int64_t>(args.t, tiling.tile_t)),
                    .out_f32 = args.out_dtype == DType::kF32,
                    .wide_stores = args.n % 8 == 0 && args.out_stride * out_bytes % 16 == 0 &&
                                   reinterpret_cast<uintptr_t>(args.out) % 16 == 0};
  Status mapped = MakeMatrixMap(args.w, dtype, args.n, args.k, row_bytes,
                                tiling.tile_n / variant.cluster, &params.w_map);
  if (mapped.ok()) {
    mapped = MakeMatrixMap(args.x, dtype, args.t, args.k, row_bytes, tiling.tile_t, &params.x_map);
  }
  if (!mapped.ok()) return stream.device->Fail(std::move(mapped));
  const int64_t work =
      int64_t{params.tiles_n} * params.tiles_t * (tiling.weights_first ? params.k_blocks : 1);
  const int64_t blocks =
      std::min<int64_t>(NumMultiprocessors(), AlignUp<int64_t>(work, variant.cluster));
  variant.launch(stream, params, static_cast<int>(AlignDown<int64_t>(blocks, variant.cluster)));
}

void Gemm(Stream stream, const GemmArgs& args) {
  GemmWithTiling(stream, args, ChooseGemm(args, NumMultiprocessors()));
}

}  // namespace hayate::ops::sm90
