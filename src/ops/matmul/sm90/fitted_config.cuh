#pragma once
// Tile sizes, warp roles and the shared-memory plan of the product for hundreds of tokens.

#include <cuda.h>

#include <algorithm>
#include <cstdint>

#include "ops/matmul/sm90/fitted_gemm.h"
#include "ops/matmul/sm90/gemm_config.cuh"

namespace hayate::ops::sm90 {

struct FittedParams {
  CUtensorMap w_map;    // boxes of 128 bytes × kTileN rows (gated: 8 × 2 halves × kTileN / 16)
  CUtensorMap x_map;    // boxes of 128 bytes × kBoxT rows
  CUtensorMap out_map;  // bulk_stores: boxes of 64 bf16 (gated: 32) × kStoreTokens rows
  void* out;
  const float* bias;
  const float* x_scale;
  const float* w_scale;
  int64_t out_stride;
  int32_t t, n;
  int32_t k_blocks;  // of 128 bytes
  int32_t tiles_n, tiles_t;
  bool out_f32;
  bool bulk_stores;  // out is bf16 that the copy engine can write
  bool gated;        // as in GemmArgs
  bool next_early;   // the next launch may begin before this one ends
};

template <Scaling kScaling_, int kTileN_, int kTileT_, int kCluster_, int kParts_>
struct FittedConfig {
  static constexpr Scaling kScaling = kScaling_;
  static constexpr int kTileN = kTileN_;
  static constexpr int kTileT = kTileT_;
  static constexpr int kCluster = kCluster_;
  static constexpr int kParts = kParts_;
  static constexpr int kClusterBlocks = kCluster * kParts;
  static_assert(kScaling != Scaling::kBlock);
  static_assert(kCluster == 1 || kParts == 1);
  static_assert(kParts <= 2);

  static constexpr bool kFp8 = kScaling == Scaling::kVector;
  static constexpr int kBlockK = kFp8 ? 128 : 64;  // elements of kRowBytes
  static constexpr int kStepsPerBlock = 4;         // of 32 bytes, one instruction's K

  // A consumer group multiplies 64 features with all tokens of the tile.
  static constexpr int kGroups = kTileN / 64;
  static constexpr int kConsumerThreads = 128 * kGroups;
  static constexpr int kThreads = 128 + kConsumerThreads;
  static constexpr int kSums = kTileT / 2;  // of a thread
  // Of 64 Ki, all of them: the fetching group needs few.
  static constexpr int kFetchRegisters = kGroups == 2 ? 40 : 32;
  static constexpr int kSumRegisters = kGroups == 2 ? 232 : 160;

  static constexpr int kBoxT = kTileT / kCluster;
  static_assert(kTileN % 64 == 0 && kTileN <= 256 && kTileT % 32 == 0 && kBoxT % 8 == 0);
  static constexpr int kStageBytesW = kTileN * kRowBytes;
  static constexpr int kStageBytesX = kTileT * kRowBytes;
  static constexpr int kStageBytes = kStageBytesW + kStageBytesX;

  // A group's 64 features on their way to out, so that no warp waits for the copy engine, which
  // fetches the next tile meanwhile.
  static constexpr int kStoreTokens = kTileT / kParts;
  static constexpr int kStoreOctets = kStoreTokens / 8;
  static constexpr int kStoreSums = kSums / kParts;  // of a thread
  static_assert(kStoreOctets % 2 == 0);
  static constexpr int kStoreBytes = kStoreTokens * kRowBytes;
  static constexpr int kBarrierBytes = 512;
  static constexpr int kFixedBytes = 1024 /* alignment */ + kBarrierBytes + kGroups * kStoreBytes;
  static constexpr int kStages = std::min((kMaxSharedBytes - kFixedBytes) / kStageBytes, 8);
  static constexpr int kSharedBytes = kFixedBytes + kStages * kStageBytes;
  static_assert(kStages >= 3);
  // Two parts: half of the tile's sums pass through the ring once the products are done.
  static_assert(kParts == 1 || kSums / 2 * kConsumerThreads * 4 <= kStages * kStageBytes);
};

}  // namespace hayate::ops::sm90
