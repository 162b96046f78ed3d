#pragma once
// Which part of a layer a rank holds. Axes are cut in units (a block of a quantised type, a head)
// and the pieces differ by at most one unit, so neither the heads nor the ranks need to divide the
// other; ranks beyond the last unit hold nothing.

#include <cstdint>

namespace hayate::models {

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// Part `rank` of [0, count) cut at multiples of `unit`; the last unit may be short.
Range SplitUnits(int64_t count, int64_t unit, int rank, int num_ranks);

// Query heads [begin, end) and the key-value heads that they read. Where the cut falls inside a
// group of query heads, both ranks hold that group's key-value head.
struct HeadShard {
  Range query;
  Range kv;
  // Query head `query.begin` is this far into its group.
  int32_t group_offset = 0;
};
HeadShard SplitHeads(int32_t num_heads, int32_t num_kv_heads, int64_t unit, int rank,
                     int num_ranks);

}  // namespace hayate::models
