#include "engine/pool_metrics.h"

namespace hayate::engine {

PoolMetrics::PoolMetrics(obs::Registry& registry, const std::string& model_name,
                         const kv::KvCaches& cache) {
  const auto gauge = [&](const char* name, const char* help, int group) -> obs::Gauge& {
    const std::string& pool = cache.layout().groups[static_cast<size_t>(group)].name;
    return registry.AddGauge({name, help, {{"model_name", model_name}, {"pool", pool}}});
  };
  for (int group = 0; group < cache.num_groups(); ++group) {
    gauge("hayate:kv_pool_pages", "Pages of a cache group's pool", group)
        .Set(cache.counts(group).usable);
    pools_.push_back({gauge("hayate:kv_pool_used_pages", "Pages that running requests hold", group),
                      gauge("hayate:kv_pool_cached_pages", "Pages cached and evictable", group)});
  }
}

void PoolMetrics::Publish(const kv::KvCaches& cache) {
  for (size_t group = 0; group < pools_.size(); ++group) {
    const kv::PageCounts pages = cache.counts(static_cast<int>(group));
    pools_[group].used.Set(pages.usable - pages.free - pages.evictable);
    pools_[group].cached.Set(pages.evictable);
  }
}

}  // namespace hayate::engine
