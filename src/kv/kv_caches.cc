#include "kv/kv_caches.h"

#include <string>

namespace hayate::kv {

Result<std::unique_ptr<KvCaches>> KvCaches::Create(const KvCacheOptions& options,
                                                   int num_dp_ranks) {
  CHECK_GT(num_dp_ranks, 0);
  auto caches = std::make_unique<KvCaches>();
  for (int i = 0; i < num_dp_ranks; ++i) {
    ASSIGN_OR_RETURN(auto cache, KvCache::Create(options));
    caches->caches_.push_back(std::move(cache));
  }
  return caches;
}

void KvCaches::StepSubmitted(uint64_t step) {
  for (const auto& cache : caches_) cache->StepSubmitted(step);
}

void KvCaches::StepRetired(uint64_t step) {
  for (const auto& cache : caches_) cache->StepRetired(step);
}

void KvCaches::Flush() {
  for (const auto& cache : caches_) cache->Flush();
}

void KvCaches::TakeNameChanges(std::vector<PrefixKeyChange>& out) {
  for (const auto& cache : caches_) cache->TakeNameChanges(out);
}

Status KvCaches::CheckIntegrity() const {
  for (size_t i = 0; i < caches_.size(); ++i) {
    const Status status = caches_[i]->CheckIntegrity();
    if (!status.ok()) return status.Under("dp rank " + std::to_string(i));
  }
  return OkStatus();
}

PageCounts KvCaches::counts(int group) const {
  PageCounts sum;
  for (const auto& cache : caches_) {
    const PageCounts one = cache->counts(group);
    sum.usable += one.usable;
    sum.free += one.free;
    sum.deferred += one.deferred;
    sum.tree += one.tree;
    sum.evictable += one.evictable;
    sum.sequences += one.sequences;
  }
  return sum;
}

KvCacheStats KvCaches::stats() const {
  KvCacheStats sum;
  for (const auto& cache : caches_) {
    const KvCacheStats one = cache->stats();
    sum.lookups += one.lookups;
    sum.lookup_tokens += one.lookup_tokens;
    sum.hit_tokens += one.hit_tokens;
    for (size_t g = 0; g < sum.evicted_pages.size(); ++g) {
      sum.evicted_pages[g] += one.evicted_pages[g];
    }
  }
  return sum;
}

}  // namespace hayate::kv
