#pragma once
// What lies between the qkv projection and attention, as one launch: the per-head norm and the
// rotation of queries and keys, and the append of keys and values to the cache.

#include "ops/attention/paged_attention.h"
#include "ops/rope/rope.h"

namespace hayate::ops {

struct RopeKvWriteArgs {
  RopeArgs rope;      // q is turned in place
  KvWriteArgs write;  // k is rope.k; the cache receives the turned keys
};
// What k holds afterwards is unspecified: the CPU turns it in place, CUDA leaves it.
void RopeKvWrite(Stream stream, const RopeKvWriteArgs& args);

}  // namespace hayate::ops
