#include "models/layers/head_shard.h"

#include <algorithm>

#include "base/align.h"

namespace hayate::models {

Range SplitUnits(int64_t count, int64_t unit, int rank, int num_ranks) {
  const int64_t units = CeilDiv(count, unit);
  const int64_t each = units / num_ranks, larger = units % num_ranks;
  const auto begin = [&](int64_t r) {
    return std::min(count, (r * each + std::min(r, larger)) * unit);
  };
  return {begin(rank), begin(rank + 1)};
}

HeadShard SplitHeads(int32_t num_heads, int32_t num_kv_heads, int64_t unit, int rank,
                     int num_ranks) {
  HeadShard shard;
  shard.query = SplitUnits(num_heads, unit, rank, num_ranks);
  if (shard.query.size() == 0) return shard;
  const int64_t group = num_heads / num_kv_heads;
  shard.kv = {shard.query.begin / group, CeilDiv(shard.query.end, group)};
  shard.group_offset = static_cast<int32_t>(shard.query.begin - shard.kv.begin * group);
  return shard;
}

}  // namespace hayate::models
