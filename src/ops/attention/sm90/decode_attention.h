#pragma once
// The launch of the decode kernel; one source file a head dimension.

#include "ops/attention/paged_attention.h"

namespace hayate::ops::sm90 {

// The decode rows of args.rows.plan.
void DecodeAttention64(Stream stream, const PagedAttentionArgs& args);
void DecodeAttention80(Stream stream, const PagedAttentionArgs& args);
void DecodeAttention96(Stream stream, const PagedAttentionArgs& args);
void DecodeAttention128(Stream stream, const PagedAttentionArgs& args);
void DecodeAttention256(Stream stream, const PagedAttentionArgs& args);

}  // namespace hayate::ops::sm90
