#pragma once
// Times steps of a fixed composition, straight on the executor: no scheduler, no HTTP. What is
// measured is the model's forward pass and sampling.

#include <cstdint>
#include <string>
#include <vector>

#include "core/step_executor.h"
#include "tensor/cache_layout.h"

namespace hayate::bench {

struct StepBenchOptions {
  static constexpr int32_t kMaxTokens = 1 << 24;  // of one sequence: prefill, context, steps

  int32_t prefill = 0;    // > 0: a prompt of so many tokens, computed in one step, no cache
  int32_t batch = 1;      // decode: sequences
  int32_t context = 512;  // decode: tokens before the first timed one
  int32_t steps = 128;    // decode: timed steps
  // Mixed steps: prompt tokens beside the decoding sequences in every step. One sequence computes
  // prompts of `context` tokens one after the other, as far as whole chunks go.
  int32_t chunk = 0;
  int32_t repeats = 5;  // the whole measurement, over and over
  uint64_t seed = 1;    // of the random token ids
};

struct StepBenchResult {
  std::vector<double> tokens_per_s;  // one a repeat: of prefill's prompt, else decoded ones
  std::vector<double> step_ms;       // one a repeat: mean of its steps
  double median_tokens_per_s() const;
  double median_step_ms() const;
};

// What the executor was made for.
struct StepBenchTarget {
  StepExecutor* executor;
  int32_t vocab_size;
  const CacheLayout* layout;
  std::vector<int32_t> pool_pages;  // per group, counting the scratch page
  int32_t max_step_tokens;
};

// Sequences that a step serves.
int32_t StepBenchSlots(const StepBenchOptions& options);
// Tokens of the KV pool that the options need.
int64_t StepBenchTokens(const StepBenchOptions& options, int32_t page_tokens);

StepBenchResult RunStepBench(const StepBenchTarget& target, const StepBenchOptions& options);

// What was timed, for the record.
struct StepBenchSubject {
  std::string model;
  std::string device;
  int num_ranks = 1;
  // What a decode step of one sequence reads: all weights, and the entries of the cache.
  int64_t weight_bytes = 0;
  int64_t cache_bytes_per_token = 0;
};
std::string ToJson(const StepBenchOptions& options, const StepBenchResult& result,
                   const StepBenchSubject& subject);

}  // namespace hayate::bench
