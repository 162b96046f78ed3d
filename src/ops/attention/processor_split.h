#pragma once
// How a step's multiprocessors are shared between decode and prefill attention. Decode is bound by
// memory, which most of them nearly saturate; a chunk of a prompt is a few tiles that want tensor
// cores. On multiprocessors of its own most of prefill's time is hidden behind decode's.

#include <cstdint>
#include <span>

#include "ops/attention/attention_plan.h"

namespace hayate::ops {

// Multiprocessors for prefill while decode has the others; 0 where the one launch after the other
// is estimated to be as fast. A step's decode rows read `decode_pages` pages of one kv head each;
// `pairs`: two neighbouring tiles go together, so that the result is even.
int32_t ProcessorsBeside(const AttentionPlanShape& shape, int64_t decode_pages,
                         std::span<const PrefillTile> tiles, bool pairs);

}  // namespace hayate::ops
