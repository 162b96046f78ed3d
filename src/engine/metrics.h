#pragma once
// The engine's metrics, by SGLang's names so that its dashboards work. Updated by the engine thread
// after each step, read by /metrics and by load balancers.

#include <cstdint>
#include <string>

#include "obs/metrics.h"

namespace hayate::engine {

struct EngineMetrics {
  // Registers everything with the label model_name.
  EngineMetrics(obs::Registry& registry, const std::string& model_name);

  obs::Gauge& num_running;
  obs::Gauge& num_waiting;
  obs::Gauge& num_paused;
  obs::Gauge& utilization;       // running requests ÷ slots
  obs::Gauge& page_size;         // tokens
  obs::Gauge& num_pages;         // of the pool
  obs::Gauge& token_usage;       // used ÷ all tokens of the pool; cached tokens are not used
  obs::Gauge& used_tokens;       // held by running sequences
  obs::Gauge& evictable_tokens;  // cached, reusable at once
  obs::Gauge& available_tokens;  // free and evictable
  obs::Gauge& max_total_tokens;
  obs::Gauge& cache_hit_rate;  // cached ÷ all tokens of admissions, re-admissions included
  obs::Gauge& gen_throughput;  // tokens a second, over a second or more; 0 when idle
  obs::Gauge& new_token_ratio;

  obs::Counter& prompt_tokens;
  obs::Counter& cached_tokens;
  obs::Counter& generation_tokens;
  obs::Counter& requests;
  obs::Counter& aborted_requests;
  obs::Counter& retracted_requests;
  obs::Counter& evicted_tokens;

  obs::Counter& structured_requests;  // under a grammar

  obs::Histogram& prompt_length;           // tokens, of requests that began to generate
  obs::Histogram& uncached_prompt_length;  // tokens of them that were computed
  obs::Histogram& generation_length;       // tokens, of requests that finished
  obs::Histogram& queue_time_seconds;
  obs::Histogram& time_to_first_token_seconds;
  obs::Histogram& inter_token_latency_seconds;
  obs::Histogram& e2e_latency_seconds;
  obs::Histogram& step_seconds;
  obs::Histogram& step_gap_seconds;  // the device waited for the host between two steps
};

}  // namespace hayate::engine
