#pragma once
// The pairs of a tile as a kernel sees them.

#include "ops/moe/sm90/grouped_product.h"

namespace hayate::ops::sm90 {

// Tile `block` of the launch; count is 0 past the last.
__device__ __forceinline__ ExpertTile TileOf(const GroupedPairs& pairs, int32_t block) {
  if (pairs.order != nullptr) {
    return block < *pairs.num_tiles ? pairs.tiles[block] : ExpertTile{};
  }
  const int32_t begin = block / pairs.num_experts * pairs.tile_tokens;
  return {block % pairs.num_experts, begin, min(pairs.tile_tokens, pairs.num_tokens - begin)};
}

__device__ __forceinline__ int32_t PairOf(const GroupedPairs& pairs, const ExpertTile& tile,
                                          int32_t i) {
  if (pairs.order != nullptr) return pairs.order[tile.begin + i];
  return (tile.begin + i) * pairs.num_experts + tile.expert;
}

}  // namespace hayate::ops::sm90
