#pragma once
// Tile sizes, warp roles and the shared-memory plan of the tensor-core product.

#include <cuda.h>

#include <algorithm>
#include <cstdint>

#include "ops/matmul/sm90/gemm.h"

namespace hayate::ops::sm90 {

struct GemmParams {
  // Boxes of w: 128 bytes × kBoxN rows (gated: 2 halves × kBoxN / 2) × kBlocks blocks of K; of x:
  // 128 bytes × this block's part of x_rows × kBoxBlocksX; of scales, kBlock: kTileT or kScalesW ×
  // kBlocks. Wide tiles: a block of K at a time, and scales as plain bytes.
  CUtensorMap w_map, x_map, x_scale_map, w_scale_map;
  CUtensorMap out_map;  // bulk_stores: boxes of 64 bf16 × kStoreRows rows
  void* out;
  const float* bias;
  const float* x_scale;
  const float* w_scale;
  int64_t out_stride;
  int64_t x_scale_stride;
  int64_t w_scale_stride;
  int32_t t, n;
  int32_t k_blocks;  // of 128 bytes
  bool ragged_k;     // the last block of K is not whole: one block a box
  int32_t tiles_n, tiles_t;
  int32_t x_rows;  // narrow: that a stage has of a block of K
  bool out_f32;
  bool bulk_stores;  // wide tiles leave through shared memory and the copy engine
  bool wide_stores;  // rows of out start at 16-byte borders and are a multiple of 8 long
  // As in GemmArgs.
  bool gated;
  const float* x_squares;  // [T, x_parts]
  int32_t x_parts;
  float x_columns, x_eps;
  float* residual;  // [T, N]
  const float* norm_weight;
  float* squares;  // [T, parts]
  int32_t parts;
};

inline constexpr int kRowBytes = 128;  // of a block of K: 64 bf16 or 128 fp8
inline constexpr int kConsumerGroups = 2;
// Scales of weights that a copy brings for a block of K of a tile.
inline constexpr int kScalesW = 8;
// Of the warpgroup whose first thread fetches, those that compute the factors of rows.
inline constexpr int kScalingWarps = 3;
// Of a wide tile a warp stores this many rows, 128 bytes of each at a time.
inline constexpr int kStoreRows = 16;
inline constexpr int kMaxSharedBytes = 227 * 1024;
// What slim tiles leave to the blocks of a row-wise launch.
inline constexpr int kSharedBytesBeside = 4 * 1024;

template <Scaling kScaling_, GemmShape kShape_, int kTileN_, int kTileT_, int kCluster_,
          bool kInOrder = false, int kParts_ = 1>
struct GemmConfig {
  static constexpr Scaling kScaling = kScaling_;
  static constexpr bool kNarrow = kShape_ == GemmShape::kNarrow;
  static constexpr int kTileN = kTileN_;
  static constexpr int kTileT = kTileT_;
  // Blocks that share an operand, as GemmTiling says: each loads its part and multicasts it.
  static constexpr int kCluster = kCluster_;
  static constexpr bool kSharesTokens = kNarrow || kTileT > kTileN;
  // Or two blocks that take a half of K each.
  static constexpr int kParts = kParts_;
  static constexpr int kClusterBlocks = kCluster * kParts;
  static_assert(kParts == 1 || (kParts == 2 && kCluster == 1 && kNarrow));

  static constexpr bool kFp8 = kScaling != Scaling::kNone;
  // What the epilogue may do besides (gemm_fused_store.cuh).
  static constexpr bool kCanGate = kNarrow && !kFp8;
  static constexpr bool kCanNorm = kNarrow && !kFp8 && kTileT <= kMaxDeferredTokens;
  static constexpr bool kPromote = kScaling == Scaling::kBlock;
  static constexpr int kBlockK = kFp8 ? 128 : 64;  // elements of kRowBytes
  static constexpr int kStepsPerBlock = 4;         // of 32 bytes, one instruction's K

  // A consumer group multiplies kSlabs times 64 tokens with kWidth features: half of the tile's
  // tokens if there are 128, else half of its features. An instruction takes as long for 16
  // features as for 48 (it reads 64 rows of tokens), so in the narrowest tiles the groups share the
  // blocks of K instead, and add their sums at the end, unless sums must go in order.
  static constexpr bool kSplitT = kTileT > kMaxSplitTileT;
  static constexpr bool kSplitK = kNarrow && !kSplitT && kTileN <= kMaxSplitTileN && !kInOrder;
  // Few tokens are multiplied by single warps (gemm_skinny.cuh), unless in order.
  static constexpr bool kSkinny = kNarrow && !kFp8 && kTileT <= kMaxSkinnyTokens && !kInOrder;
  static_assert(kParts == 1 || (!kSplitK && !kSkinny));
  static constexpr int kWidth = kSplitT || kSplitK ? kTileN : kTileN / kConsumerGroups;
  static constexpr int kSlabs = kSplitT ? kTileT / 64 / kConsumerGroups : 1;
  static constexpr int kRegs = kWidth / 2;  // accumulators of a slab
  static_assert(kWidth % 8 == 0 && kSlabs >= 1);
  static_assert(!kSplitT || kTileT % 128 == 0);

  static constexpr int kThreads = 128 * (kConsumerGroups + 1);
  static constexpr int kConsumerThreads = 128 * kConsumerGroups;

  // Blocks of K in a stage: enough that a stage is worth waiting for, and that groups queue the
  // products of one block while they add those of another.
  static constexpr int kRows = kTileN + kTileT;
  static constexpr int kMostRowsOfTwo = kTileT == 128 ? 416 : 320;
  static constexpr int kMostRowsOfFour = kPromote && kTileT == 64 ? 384 : 320;
  static constexpr int kBlocks = !kNarrow                       ? 1
                                 : 4 * kRows <= kMostRowsOfFour ? 4
                                 : 2 * kRows <= kMostRowsOfTwo  ? 2
                                                                : 1;
  static constexpr int kGroupBlocks = kSplitK ? kBlocks / kConsumerGroups : kBlocks;
  static_assert(!kSplitK || kBlocks % kConsumerGroups == 0);
  static constexpr int kBlockBytesW = kTileN * kRowBytes;
  static constexpr int kBlockBytesX = kTileT * kRowBytes;
  // Scales of the rows of x of all blocks of a stage, then kScalesW a block of weights.
  static_assert(kTileN <= (kScalesW - 4) * kScaleColumns);
  static constexpr int kStageBytesScaleX = kPromote ? kBlocks * kTileT * 4 : 0;
  static constexpr int kStageBytesScaleW = kPromote ? kBlocks * kScalesW * 4 : 0;
  static constexpr int kScaleSpaceX = (kStageBytesScaleX + 127) / 128 * 128;
  static constexpr int kScaleSpace = kScaleSpaceX + (kStageBytesScaleW + 127) / 128 * 128;
  // The part of a stage that a block of a cluster fetches for all: some blocks of K of the shared
  // operand, or where a stage has one some of its rows.
  static constexpr bool kSplitsRows = kBlocks < kCluster;
  static constexpr int kBoxN = kSharesTokens || !kSplitsRows ? kTileN : kTileN / kCluster;
  static constexpr int kBoxT = kSharesTokens && kSplitsRows ? kTileT / kCluster : kTileT;
  static constexpr int kBoxBlocksX = kSharesTokens && !kSplitsRows ? kBlocks / kCluster : kBlocks;
  static_assert(kSharesTokens || kSplitsRows);
  static_assert(kBoxN <= 256 && kBoxT <= 256 && kBoxT % 8 == 0);
  // What arrives on a full barrier besides rows of x.
  static constexpr int kStageBytesBesideX =
      kBlocks * kBlockBytesW + kStageBytesScaleX + kStageBytesScaleW;
  static constexpr int kStageSpace = kBlocks * (kBlockBytesW + kBlockBytesX) + kScaleSpace;
  // The sums of a group on their way to another.
  static constexpr int kExchangeBytes = kSplitK || kParts == 2 ? kSlabs * kRegs * 128 * 4 : 0;
  // One where scales take a stage's room otherwise.
  static constexpr int kStoreBuffers = kPromote ? 1 : 2;
  static constexpr int kStoreBytes =
      kNarrow ? 0 : kConsumerThreads / 32 * kStoreBuffers * kStoreRows * kRowBytes;
  static constexpr int kBarrierBytes = 512;
  static constexpr int kFixedBytes =
      1024 /* alignment */ + kBarrierBytes + kExchangeBytes + kStoreBytes;
  // Tiles of up to 64 tokens and few sums keep to half of the registers: the blocks of a row-wise
  // launch then fit beside those of a product, before it ends or after the next one began. For one
  // row there are multiprocessors to spare, and the registers are worth more. Of fp8 under vector
  // scales 48 sums spill: tiles of 192 features took a quarter longer.
  static constexpr int kSums = kSlabs * kRegs * (kPromote ? 1 + kGroupBlocks : 1);
  static constexpr int kMostSlimSums = kScaling == Scaling::kVector ? 40 : 48;
  static constexpr bool kSlim = kNarrow && kTileT == 64 && kSums <= kMostSlimSums;
  static constexpr int kSharedLimit = kMaxSharedBytes - (kSlim ? kSharedBytesBeside : 0);
  static constexpr int kMaxStages = 16;
  static constexpr int kStages = std::min((kSharedLimit - kFixedBytes) / kStageSpace, kMaxStages);
  static constexpr int kSharedBytes = kFixedBytes + kStages * kStageSpace;
  static_assert(kStages >= 3);
};

}  // namespace hayate::ops::sm90
