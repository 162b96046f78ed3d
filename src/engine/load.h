#pragma once
// A reading of the engine for load balancers and health checks.

#include <cstdint>

namespace hayate::engine {

struct EngineLoad {
  int32_t num_running = 0;
  int32_t num_waiting = 0;
  int32_t num_free_slots = 0;    // requests that could start at once
  int64_t used_tokens = 0;       // of the KV pool, held by running requests
  int64_t total_tokens = 0;      // of the KV pool
  int64_t evictable_tokens = 0;  // cached, reusable at once
  double gen_throughput = 0.0;   // tokens a second, over a second or more
  double cache_hit_rate = 0.0;   // cached ÷ all prompt tokens since the start
  bool paused = false;
};

}  // namespace hayate::engine
