#pragma once
// Tile sizes, warp roles and the shared-memory plan of the tensor-core product.

#include <cuda.h>

#include <cstdint>

#include "ops/matmul/sm90/gemm.h"

namespace hayate::ops::sm90 {

struct GemmParams {
  CUtensorMap w_map;  // boxes of 128 bytes × kBoxN rows
  CUtensorMap x_map;  // boxes of 128 bytes × kTileT rows
  void* out;
  const float* bias;
  const float* x_scale;
  const float* w_scale;
  float* partials;
  uint32_t* flags;
  int64_t out_stride;
  int64_t x_scale_stride;
  int32_t t, n, k_blocks;
  int32_t tiles_n, tiles_t;
  bool out_f32;
  bool wide_stores;  // rows of out start at 16-byte borders and N is a multiple of 8
};

inline constexpr int kRowBytes = 128;  // of a stage: 64 bf16 or 128 fp8 along K
inline constexpr int kConsumerGroups = 2;
inline constexpr int kMaxSharedBytes = 227 * 1024;

template <Scaling kScaling_, bool kWeightsFirst_, int kTileN_, int kTileT_, int kCluster_>
struct GemmConfig {
  static constexpr Scaling kScaling = kScaling_;
  static constexpr bool kWeightsFirst = kWeightsFirst_;
  static constexpr int kTileN = kTileN_;
  static constexpr int kTileT = kTileT_;
  // Blocks that share one tile of weights: each loads its part and multicasts it.
  static constexpr int kCluster = kCluster_;

  static constexpr bool kFp8 = kScaling != Scaling::kNone;
  static constexpr bool kPromote = kScaling == Scaling::kBlock;
  static constexpr int kStageK = kFp8 ? 128 : 64;  // elements
  static constexpr int kStepsPerStage = 4;         // of 32 bytes, one instruction's K

  static constexpr int kRowsA = kWeightsFirst ? kTileN : kTileT;
  static constexpr int kWidth = kWeightsFirst ? kTileT : kTileN;  // of an instruction
  static constexpr int kSlabs = kRowsA / (64 * kConsumerGroups);  // of 64 rows, per group
  static constexpr int kRegs = kWidth / 2;                        // accumulators of a slab
  static_assert(kRowsA % (64 * kConsumerGroups) == 0 && kSlabs >= 1);
  static_assert(!kPromote || kTileN % 64 == 0, "a slab crosses at most one border of scales");

  static constexpr int kThreads = 128 * (kConsumerGroups + 1);
  static constexpr int kConsumerThreads = 128 * kConsumerGroups;

  static constexpr int kBytesW = kTileN * kRowBytes;
  static constexpr int kBytesX = kTileT * kRowBytes;
  static constexpr int kBytesScale = kPromote ? kTileT * 4 : 0;
  static constexpr int kBoxN = kTileN / kCluster;
  static_assert(kBoxN <= 256 && kTileT <= 256);
  // What arrives on a full barrier.
  static constexpr int kStageBytes = kBytesW + kBytesX + kBytesScale;
  static constexpr int kScalePitch = (kBytesScale + 127) / 128 * 128;
  static constexpr int kFixedBytes = 1024 /* alignment */ + 512 /* barriers */;
  static constexpr int kStages =
      (kMaxSharedBytes - kFixedBytes) / (kBytesW + kBytesX + kScalePitch) < 16
          ? (kMaxSharedBytes - kFixedBytes) / (kBytesW + kBytesX + kScalePitch)
          : 16;
  static constexpr int kSharedBytes = kFixedBytes + kStages * (kBytesW + kBytesX + kScalePitch);
  static_assert(!kWeightsFirst || kTileN * kTileT <= 128 * 128);  // GemmPartialBytes
  static_assert(kStages >= 3 && kBytesX % 1024 == 0);
};

}  // namespace hayate::ops::sm90
