#pragma once
// The books of a replica's KV pools: one KvCache for every dp rank, each with pools and a radix
// tree of its own, for a sequence's pages lie on one dp rank alone. Without DP attention there is
// one. Owner: engine thread.

#include <memory>
#include <vector>

#include "kv/kv_cache.h"

namespace hayate::kv {

class KvCaches {
 public:
  // Every dp rank has the pools that `options` tells. Errors as KvCache::Create's.
  static Result<std::unique_ptr<KvCaches>> Create(const KvCacheOptions& options,
                                                  int num_dp_ranks = 1);

  int num_dp_ranks() const { return static_cast<int>(caches_.size()); }
  KvCache& of(int dp_rank) { return *caches_[static_cast<size_t>(dp_rank)]; }
  const KvCache& of(int dp_rank) const { return *caches_[static_cast<size_t>(dp_rank)]; }

  // To all of them.
  void StepSubmitted(uint64_t step);
  void StepRetired(uint64_t step);
  void Flush();
  void TakeNameChanges(std::vector<PrefixKeyChange>& out);
  Status CheckIntegrity() const;

  // Equal in all.
  int num_groups() const { return of(0).num_groups(); }
  int32_t page_tokens() const { return of(0).page_tokens(); }
  const CacheLayout& layout() const { return of(0).layout(); }
  // Sums.
  PageCounts counts(int group) const;
  KvCacheStats stats() const;

 private:
  std::vector<std::unique_ptr<KvCache>> caches_;
};

}  // namespace hayate::kv
