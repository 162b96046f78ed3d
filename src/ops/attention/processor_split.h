#pragma once
// How a step's multiprocessors are shared between decode and prefill attention, and by the tiles of
// the latter. Decode is bound by memory, which most of them nearly saturate; a chunk of a prompt is
// a few tiles that want tensor cores. On multiprocessors of its own most of prefill's time is
// hidden behind decode's. Behind many keys it would take longer than decode: then it has all of
// them after decode, some for each tile.

#include <cstdint>
#include <span>

#include "ops/attention/attention_plan.h"

namespace hayate::ops {

struct ProcessorSplit {
  // Multiprocessors for prefill while decode has the others; 0 where the one launch after the other
  // is estimated to be as fast.
  int32_t beside = 0;
  // So many divide the keys of a tile: 1, 2 or 4. More than one only if SplitRule lets sums depend
  // on other rows, and where prefill has all of them: beside decode they would leave it too few.
  int32_t parts = 1;
};

// A step's decode rows read `decode_pages` pages of one kv head each. `pairs`: two neighbouring
// tiles go together where none is divided, and the result is even then.
ProcessorSplit SplitProcessors(const AttentionPlanShape& shape, int64_t decode_pages,
                               std::span<const PrefillTile> tiles, bool pairs);

}  // namespace hayate::ops
