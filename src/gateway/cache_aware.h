#pragma once
// The policy that sends a prompt where its beginning is cached, unless that worker is too busy.
//
//   cost(w) = uncached bytes of the prompt, in tokens
//           + kRequestTokens · (requests of w above the least loaded worker's)
//           + tokens w still has to compute
//
// so affinity is given up gradually: a second worker takes a hot prefix as soon as computing it
// again is cheaper than waiting. A worker that is balance_abs requests above the least loaded and
// balance_rel times its load is out of the question. On a miss the least loaded worker wins, never
// the one with the smallest tree: a new worker would get everything.

#include <memory>

#include "gateway/policy.h"

namespace hayate::gateway {

std::unique_ptr<Policy> MakeCacheAware(const PolicyOptions& options);

}  // namespace hayate::gateway
