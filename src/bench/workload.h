#pragma once
// What a load test sends, and when: prompts, answer lengths and arrival times, all from one seed.

#include <cstdint>
#include <string>
#include <vector>

namespace hayate::bench {

struct PlannedRequest {
  std::vector<int32_t> prompt_ids;  // random; either these are sent
  std::string prompt_text;          // or these words, about one token each
  int32_t output_tokens = 0;
};

// Lengths are uniform in [⌊range_ratio · nominal⌋, nominal], at least 1: range_ratio 1 gives equal
// lengths.
struct RandomWorkload {
  int32_t num_prompts = 0;
  int32_t input_tokens = 256;
  int32_t output_tokens = 128;
  double range_ratio = 1.0;
  // Leading tokens of every prompt that are the same in all of one group; they come on top of
  // input_tokens. Requests take the groups in turn.
  int32_t shared_prefix_tokens = 0;
  int32_t num_prefix_groups = 1;
  enum class Prompts { kIds, kText } prompts = Prompts::kIds;
  int32_t vocab_size = 0;  // ids are in [0, vocab_size)
  uint64_t seed = 1;
};
std::vector<PlannedRequest> MakeRandomWorkload(const RandomWorkload& workload);

// Seconds from the start at which each request arrives, ascending, the first at 0. A Poisson
// process: gaps are exponential with mean 1 / request_rate. An infinite rate puts all at 0.
std::vector<double> ArrivalTimes(int32_t num_requests, double request_rate, uint64_t seed);

}  // namespace hayate::bench
