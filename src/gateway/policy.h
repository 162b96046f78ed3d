#pragma once
// How one worker is chosen among those that may take a request. Policies are deterministic: equal
// calls on equal state choose equally, chance comes from a seeded generator, time is an argument.
// Owner: the router, under its lock.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "gateway/worker.h"

namespace hayate::gateway {

// A worker that is up, not draining, and whose breaker lets a request through.
struct Candidate {
  WorkerId id;
  uint16_t slot = 0;       // small number of the worker, reused after it is gone
  double weight = 1.0;     // below 1 while it is eased in
  int64_t requests = 0;    // the gateway's own in flight
  int64_t tokens = 0;      // of those: prompt tokens not yet computed, and expected output
  int64_t waiting = 0;     // last reported, others' included
  double token_usage = 0;  // last reported, 0 to 1
  std::string_view name;   // its URL: what consistent hashing hashes
};

// What of a request decides where it goes.
struct RouteKey {
  std::string_view prompt;  // raw bytes that start its prompt; may be empty
  uint64_t seed = 0;        // of its cache namespace: model, adapter, tools
  std::string_view sticky;  // of a header or field; empty: none
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
};

class Policy {
 public:
  virtual ~Policy() = default;
  // An index into `candidates`, which is not empty and sorted by id. The request goes there.
  virtual size_t Pick(std::span<const Candidate> candidates, const RouteKey& key,
                      int64_t now_ns) = 0;
  // The worker's cache can hold that many tokens.
  virtual void SetCapacity(uint16_t, int64_t /*tokens*/) {}
  // What the worker told of its cache.
  virtual void OnCacheChanges(uint16_t /*slot*/, const CacheChanges&, int64_t /*now_ns*/) {}
  // The worker is gone, or lost its cache.
  virtual void Forget(uint16_t /*slot*/, WorkerId) {}
  // Memory of what it remembers.
  virtual size_t bytes() const { return 0; }
};

struct PolicyOptions {
  std::string name = "cache_aware";
  uint64_t seed = 1;
  // cache_aware
  double cache_threshold = 0.3;  // share of a prompt below which a match does not count
  int64_t balance_abs = 16;      // a worker this many requests above the least loaded, and
  double balance_rel = 1.5;      // this many times its load, gets no request for its cache
  size_t max_tree_bytes = 64 << 20;
  int64_t max_age_ns = 3'600'000'000'000;
  size_t block_bytes = 64;
  // sticky
  int64_t max_idle_ns = 14'400'000'000'000;
  size_t max_sticky_keys = 1 << 20;
};

// Names as for sglang-router: round_robin, random, power_of_two, least_load, consistent_hash(ing),
// sticky or manual, cache_aware, passthrough (the first).
Result<std::unique_ptr<Policy>> MakePolicy(const PolicyOptions& options);
std::vector<std::string> PolicyNames();

// How busy a worker is, in requests and in tokens; a worker that is eased in counts as busier.
double RequestPressure(const Candidate& candidate);
double TokenPressure(const Candidate& candidate);

}  // namespace hayate::gateway
