#pragma once
// Ids and counts that cross module borders.

#include <cstdint>

#include "base/strong_id.h"

namespace hayate {

using TokenId = int32_t;

// One answer being generated. A chat with n = 4 is four requests. Unique for the life of the
// process.
using RequestId = StrongId<struct RequestIdTag, uint64_t>;

// A running sequence's row on the device, in [0, max_running). It names the sequence's page tables,
// its last sampled token and its sampler state there; reused after the sequence ends.
using SlotId = StrongId<struct SlotIdTag, int32_t>;

// A page of one cache group's pool. Page 0 of every group is scratch: padding rows write there and
// nobody reads it.
using PageId = StrongId<struct PageIdTag, int32_t>;
inline constexpr PageId kNoPage{-1};
inline constexpr PageId kScratchPage{0};

}  // namespace hayate
