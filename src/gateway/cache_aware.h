#pragma once
// The policy that sends a prompt where its beginning is cached, unless that worker is too busy.
//
//   cost(w) = tokens of the prompt that w would have to compute
//           + kRequestTokens · (requests of w above the least loaded worker's)
//           + kTokenWeight · tokens in flight at w
//           + kWorkWeight · (work given to w lately, above the least)
//
// so affinity is given up gradually: a second worker takes a hot prefix as soon as computing it
// again is cheaper than waiting. A worker that is balance_abs requests above the least loaded and
// balance_rel times its load is out of the question. On a miss the least loaded worker wins, never
// the one with the smallest tree: a new worker would get everything.
//
// What is cached is a guess from what was sent, or for workers that tell of their caches what they
// told.

#include <memory>

#include "gateway/policy.h"

namespace hayate::gateway {

std::unique_ptr<Policy> MakeCacheAware(const PolicyOptions& options);

}  // namespace hayate::gateway
