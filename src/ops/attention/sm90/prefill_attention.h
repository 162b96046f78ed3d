#pragma once
// The launch of the prefill kernel; one source file a cache type.

#include "ops/attention/paged_attention.h"

namespace hayate::ops::sm90 {

// The prefill tiles of args.rows.plan. Head dimension 64 or 128, whole groups.
void PrefillAttentionBf16(Stream stream, const PagedAttentionArgs& args);
void PrefillAttentionE4M3(Stream stream, const PagedAttentionArgs& args);

}  // namespace hayate::ops::sm90
