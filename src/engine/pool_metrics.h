#pragma once
// What each pool of the cache holds. The pools of a hybrid model fill apart: windows and states run
// out while the rest has room. Updated by the engine thread.

#include <string>
#include <vector>

#include "kv/kv_caches.h"
#include "obs/metrics.h"

namespace hayate::engine {

class PoolMetrics {
 public:
  // Registers everything with the labels model_name and pool, the group's name.
  PoolMetrics(obs::Registry& registry, const std::string& model_name, const kv::KvCaches& cache);
  void Publish(const kv::KvCaches& cache);

 private:
  struct Pool {
    obs::Gauge& used;    // held by running sequences, or waiting for steps in flight
    obs::Gauge& cached;  // of prefixes that nobody uses
  };
  std::vector<Pool> pools_;  // by group
};

}  // namespace hayate::engine
