#pragma once
// Policies that send equal keys to equal workers.

#include <memory>

#include "gateway/policy.h"

namespace hayate::gateway {

// A ring of points per worker: adding or removing one worker moves only its share of the keys. A
// key whose worker is missing goes to the next on the ring. Without a key: the prompt's beginning,
// and without that the least loaded.
std::unique_ptr<Policy> MakeConsistentHash(const PolicyOptions& options);

// Remembers where a key went first, the least loaded worker then, and stays there while that worker
// is a candidate. Bounded by idle time and by number; the longest unused go first.
std::unique_ptr<Policy> MakeSticky(const PolicyOptions& options);

}  // namespace hayate::gateway
