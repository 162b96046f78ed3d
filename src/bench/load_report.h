#pragma once
// What came of a load test: one record a request, their summary, and its two forms, a table for
// people and the JSON of InferenceX and vLLM's benchmark_serving for plots.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/sample_stats.h"

namespace hayate::bench {

struct RequestRecord {
  std::string error;  // empty: complete
  int32_t wanted_output_tokens = 0;
  int32_t input_tokens = 0;   // as the server counted them
  int32_t output_tokens = 0;  // as the server counted them
  int32_t cached_tokens = 0;
  double ttft_s = 0.0;        // sent to the first event with text
  double e2e_s = 0.0;         // sent to the end of the stream
  std::vector<double> itl_s;  // between events with text; an event may hold several tokens
};

struct LoadResult {
  std::vector<RequestRecord> records;  // in the order of the workload
  double duration_s = 0.0;             // start to the last end
  int32_t max_in_flight = 0;
};

struct LoadSummary {
  int32_t num_requests = 0;
  int32_t completed = 0;
  int32_t num_wrong_length = 0;    // complete, but with another number of tokens than wanted
  int64_t total_input_tokens = 0;  // of completed requests, as the next
  int64_t total_output_tokens = 0;
  int64_t total_cached_tokens = 0;
  double duration_s = 0.0;
  double request_throughput = 0.0;  // a second
  double input_throughput = 0.0;    // tokens a second
  double output_throughput = 0.0;
  double total_token_throughput = 0.0;
  double concurrency = 0.0;  // mean number in flight: Σ e2e / duration
  int32_t max_in_flight = 0;
  // Milliseconds, of completed requests. A request's TPOT is (e2e − ttft) / (output tokens − 1).
  SampleStats ttft_ms, tpot_ms, itl_ms, e2el_ms;
  // Different messages with their counts, the most frequent first.
  std::vector<std::pair<std::string, int32_t>> errors;
};
LoadSummary SummarizeLoad(const LoadResult& result);

// The settings that a result stands for.
struct LoadSettings {
  std::string date;  // "20261130-061500", UTC
  std::string backend;
  std::string base_url;
  std::string model;
  std::string dataset;
  int32_t random_input_len = 0;
  int32_t random_output_len = 0;
  double random_range_ratio = 1.0;
  int32_t shared_prefix_len = 0;
  double request_rate = 0.0;    // infinity: all at once
  int32_t max_concurrency = 0;  // 0: no limit
  uint64_t seed = 0;
};

std::string RenderTable(const LoadSettings& settings, const LoadSummary& summary);

enum class JsonDetail { kSummary, kPerRequest };
// One line, without its end. kPerRequest adds the arrays input_lens, output_lens, ttfts, itls and
// errors, times in seconds.
std::string ToJson(const LoadSettings& settings, const LoadSummary& summary,
                   const LoadResult& result, JsonDetail detail);

}  // namespace hayate::bench
