#include "engine/metrics.h"

namespace hayate::engine {
namespace {

// 1 ms … about 65 s and 0.5 ms … about 16 s: a factor of 2 between edges.
std::vector<double> RequestBounds() { return obs::ExponentialBounds(0.001, 2.0, 17); }
std::vector<double> TokenBounds() { return obs::ExponentialBounds(0.0005, 2.0, 16); }
// 16 … 256K tokens.
std::vector<double> LengthBounds() { return obs::ExponentialBounds(16, 2.0, 15); }
// 1 µs … about 32 ms.
std::vector<double> GapBounds() { return obs::ExponentialBounds(1e-6, 2.0, 16); }

}  // namespace

EngineMetrics::EngineMetrics(obs::Registry& r, const std::string& model)
    : num_running(
          r.AddGauge({"sglang:num_running_reqs", "Running requests", {{"model_name", model}}})),
      num_waiting(r.AddGauge(
          {"sglang:num_queue_reqs", "Requests waiting for a slot", {{"model_name", model}}})),
      num_paused(r.AddGauge({"sglang:num_paused_reqs",
                             "Requests held while generation is paused",
                             {{"model_name", model}}})),
      utilization(r.AddGauge({"sglang:utilization",
                              "Running requests as a share of those that may run",
                              {{"model_name", model}}})),
      page_size(r.AddGauge({"sglang:page_size", "Tokens of a KV page", {{"model_name", model}}})),
      num_pages(r.AddGauge({"sglang:num_pages", "Pages of the KV pool", {{"model_name", model}}})),
      token_usage(r.AddGauge({"sglang:token_usage",
                              "Share of the KV pool held by running requests",
                              {{"model_name", model}}})),
      used_tokens(r.AddGauge({"sglang:num_used_tokens",
                              "KV tokens held by running requests",
                              {{"model_name", model}}})),
      evictable_tokens(r.AddGauge({"sglang:kv_evictable_tokens",
                                   "KV tokens cached and evictable",
                                   {{"model_name", model}}})),
      available_tokens(r.AddGauge(
          {"sglang:kv_available_tokens", "KV tokens free or evictable", {{"model_name", model}}})),
      max_total_tokens(r.AddGauge(
          {"sglang:max_total_num_tokens", "KV tokens of the pool", {{"model_name", model}}})),
      cache_hit_rate(r.AddGauge({"sglang:cache_hit_rate",
                                 "Share of prompt tokens served from the prefix cache",
                                 {{"model_name", model}}})),
      gen_throughput(r.AddGauge(
          {"sglang:gen_throughput", "Generated tokens per second", {{"model_name", model}}})),
      new_token_ratio(r.AddGauge({"sglang:new_token_ratio",
                                  "Share of remaining output that admission reserves",
                                  {{"model_name", model}}})),
      prompt_tokens(r.AddCounter({"sglang:prompt_tokens_total",
                                  "Prompt tokens computed or served from the cache",
                                  {{"model_name", model}}})),
      cached_tokens(r.AddCounter({"sglang:cached_tokens_total",
                                  "Prompt tokens served from the prefix cache",
                                  {{"model_name", model}}})),
      generation_tokens(r.AddCounter(
          {"sglang:generation_tokens_total", "Tokens generated", {{"model_name", model}}})),
      requests(r.AddCounter(
          {"sglang:num_requests_total", "Requests finished", {{"model_name", model}}})),
      aborted_requests(r.AddCounter({"sglang:num_aborted_requests_total",
                                     "Requests cancelled or failed",
                                     {{"model_name", model}}})),
      retracted_requests(r.AddCounter({"sglang:num_retracted_requests_total",
                                       "Running requests put back into the queue",
                                       {{"model_name", model}}})),
      evicted_tokens(r.AddCounter(
          {"sglang:evicted_tokens_total", "Cached tokens evicted", {{"model_name", model}}})),
      structured_requests(r.AddCounter(
          {"sglang:num_so_requests_total", "Requests under a grammar", {{"model_name", model}}})),
      prompt_length(r.AddHistogram(
          {"sglang:prompt_tokens_histogram", "Prompt tokens of a request", {{"model_name", model}}},
          LengthBounds())),
      uncached_prompt_length(r.AddHistogram({"sglang:uncached_prompt_tokens_histogram",
                                             "Prompt tokens of a request that were computed",
                                             {{"model_name", model}}},
                                            LengthBounds())),
      generation_length(r.AddHistogram({"sglang:generation_tokens_histogram",
                                        "Generated tokens of a request",
                                        {{"model_name", model}}},
                                       LengthBounds())),
      queue_time_seconds(r.AddHistogram(
          {"sglang:queue_time_seconds", "Arrival to admission", {{"model_name", model}}},
          RequestBounds())),
      time_to_first_token_seconds(r.AddHistogram(
          {"sglang:time_to_first_token_seconds", "Arrival to first token", {{"model_name", model}}},
          RequestBounds())),
      inter_token_latency_seconds(r.AddHistogram({"sglang:inter_token_latency_seconds",
                                                  "Between tokens of a request",
                                                  {{"model_name", model}}},
                                                 TokenBounds())),
      e2e_latency_seconds(r.AddHistogram(
          {"sglang:e2e_request_latency_seconds", "Arrival to last token", {{"model_name", model}}},
          RequestBounds())),
      step_seconds(r.AddHistogram(
          {"hayate:step_seconds", "Time of a step on the device", {{"model_name", model}}},
          TokenBounds())),
      step_gap_seconds(r.AddHistogram({"hayate:step_gap_seconds",
                                       "Device idle between two steps while there was work",
                                       {{"model_name", model}}},
                                      GapBounds())) {}

}  // namespace hayate::engine
