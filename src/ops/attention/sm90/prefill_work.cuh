#pragma once
// What the roles of the prefill kernel share: tiles, shared memory, the order of work.

#include "ops/attention/attention_plan.h"
#include "ops/attention/sm90/numbers.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "ops/detail/sm90/mbarrier.cuh"

namespace hayate::ops::sm90 {

inline constexpr int kBlockM = kPrefillQueries;
inline constexpr int kBlockN = 128;
inline constexpr int kBlockPages = kBlockN / kPlanPage;
inline constexpr int kStages = 2;
inline constexpr int kConsumers = 2;  // warpgroups
inline constexpr int kThreads = 128 * (1 + kConsumers);
inline constexpr int kWarpQueries = kBlockM / (4 * kConsumers);
inline constexpr int kMergingWarps = 4;  // of a block, at most: half of those that compute
inline constexpr int kHalf = 64;         // elements of a swizzled row of 128 bytes
using Bf16 = __nv_bfloat16;

struct PrefillParams {
  Bf16* out;  // [T, Hq, D]
  const PrefillTile* tiles;
  int32_t num_tiles, num_kv_heads, num_q_heads, group_size;
  const int32_t* page_table;
  int32_t page_table_stride, window;
  float scale, soft_cap;
  const float* sinks;
};

// Shared memory. Operands lie as halves of 64 features: rows of 128 bytes, swizzled.
template <int kD>
struct PrefillShared {
  static constexpr int kHalves = kD / kHalf;
  alignas(1024) Bf16 q[kHalves][kBlockM][kHalf];
  Bf16 k[kStages][kHalves][kBlockN][kHalf];
  Bf16 v[kStages][kHalves][kBlockN][kHalf];
  // A tile on its way out, and before that what other blocks leave of parts (prefill_parts.cuh).
  union {
    Bf16 out[kBlockM][kD];  // 16-byte chunks permuted within a row
    float4 part_sums[kMergingWarps][kD / 8][32];
  };
  float2 part_max_sum[kMergingWarps][kWarpQueries];
  Barrier q_full, q_empty, k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
  // What the copy engine brought that still has to be worked on: values that need zeros behind the
  // last key, or blocks of e4m3.
  Barrier raw_full[kStages], raw_empty[kStages];
};

// An e4m3 cache: its blocks as they are, on their way to `k` and `v`.
template <typename TCache, int kD>
struct PrefillSharedOf : PrefillShared<kD> {
  alignas(128) TCache raw[kStages][kBlockN][kD];
};
template <int kD>
struct PrefillSharedOf<Bf16, kD> : PrefillShared<kD> {};

// What a tile attends; the tiles of a pair, neighbours in a row, go through the same blocks of
// keys. Of a tile in parts: what one of them attends, its blocks alone.
struct PrefillWork {
  PrefillTile tile;
  int32_t kv_head;
  int32_t first_key, end_key;      // visible to some query of them: [first_key, end_key)
  int32_t first_block, end_block;  // of kBlockN keys
  int32_t written_end;             // no key from here on to end_block was ever written

  // `tiles` are the one of a block or the pair of a cluster, of which this block has number `rank`.
  __device__ PrefillWork(const PrefillParams& params, const PrefillTile* tiles, int32_t num_tiles,
                         uint32_t rank, int32_t head)
      : tile(tiles[rank]), kv_head(head) {
    const PrefillTile& last = tiles[num_tiles - 1];
    first_key = params.window > 0 ? max(0, tiles[0].position - params.window + 1) : 0;
    end_key = last.position + last.num_tokens;
    written_end = end_key + last.tokens_after;
    first_block = first_key / kBlockN;
    end_block = (end_key + kBlockN - 1) / kBlockN;
  }

  // Leaves one of `parts` about equal parts of the blocks of keys; there may be too few for all.
  __device__ void TakePart(int32_t part, int32_t parts) {
    const int32_t begin = first_block, count = end_block - first_block;
    first_block = begin + count * part / parts;
    end_block = begin + count * (part + 1) / parts;
  }
};

// Calls f with every piece of work of this block, in order. Tiles, or pairs of them, are dealt to
// the blocks or clusters from left to right, then from right to left, and so on. A cluster has
// kTiles tiles at a time, each in kParts parts; one of the two is 1.
template <int kTiles, int kParts, typename F>
__device__ __forceinline__ void ForWork(const PrefillParams& params, const F& f) {
  constexpr int kCluster = kTiles * kParts;
  const int32_t count = params.num_tiles / kTiles * params.num_kv_heads;
  const int32_t seats = static_cast<int32_t>(gridDim.x) / kCluster;
  const int32_t place = static_cast<int32_t>(blockIdx.x) / kCluster;
  const uint32_t rank = kCluster > 1 ? ClusterRank() : 0;
  for (int32_t round = 0; round * seats < count; ++round) {
    const int32_t index = round * seats + (round % 2 == 0 ? place : seats - 1 - place);
    if (index >= count) continue;
    const PrefillTile* tiles = params.tiles + index / params.num_kv_heads * kTiles;
    PrefillWork work(params, tiles, kTiles, kTiles > 1 ? rank : 0, index % params.num_kv_heads);
    if constexpr (kParts > 1) work.TakePart(static_cast<int32_t>(rank), kParts);
    f(work);
  }
}

}  // namespace hayate::ops::sm90
