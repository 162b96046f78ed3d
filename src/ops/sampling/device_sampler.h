#pragma once
// Sampling on the device: draws or scores for many rows in one launch and leaves the tokens there
// for the next step. The definition is that of sampling.h; a row's result is the same on the CPU,
// whatever else is in the batch.
//
// What exec does, once at start: allocate `results`, `top_ids` and `top_logprobs` where the host
// can read them once the step is done (pinned memory), last_tokens and counts. When slots start:
// stage one CountsStart for each with penalties, call StartCounts. Every step: stage one SamplerRow
// per row, with its bias list and banned ids, among the step's inputs, and copy its masks; call
// SampleRows. No call allocates, synchronises or reads device memory from the host, and the grid
// depends on `num_rows` and `kernel` alone, so all can be captured.

#include <cstdint>
#include <span>

#include "tensor/device.h"

namespace hayate::ops {

// The most alternatives reported with a token.
inline constexpr int32_t kMaxTopLogprobs = 20;
// Of V: a row of logits is held in the shared memory of a cluster. Whoever loads a model checks it.
inline constexpr int32_t kMaxSamplerVocab = 393216;

// What one row asks for; in device memory. Defaults: padding, which does nothing.
struct alignas(16) SamplerRow {
  uint64_t seed = 0;
  uint64_t position = 0;      // of the token being drawn: the random counter
  int32_t logits_row = -1;    // row of SampleRowsArgs::logits; −1: padding
  int32_t slot = -1;          // last_tokens[slot] takes the token; −1: nobody's
  int32_t scored_token = -1;  // ≥ 0: draws nothing, scores this token (prompt log-probabilities)
  int32_t num_logprobs = -1;  // −1 none, 0 the token's own, n ≤ kMaxTopLogprobs: and the n best
  float temperature = 0.0f;   // below kGreedyTemperature: the highest logit
  int32_t top_k = 0;          // 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  float repetition_penalty = 1.0f;
  int32_t counts_row = -1;   // row of SamplerState::counts; −1: no penalties, nothing is counted
  int32_t bitmask_row = -1;  // row of SampleRowsArgs::bitmasks; −1: every id is allowed
  // Ranges of the shared lists. Bias ids ascend; equal ones are added in their order.
  int32_t bias_begin = 0;
  int32_t bias_end = 0;
  int32_t banned_begin = 0;
  int32_t banned_end = 0;
};
static_assert(sizeof(SamplerRow) == 96);

struct alignas(16) SampledToken {
  int32_t token = 0;
  int32_t rank = 0;        // how many raw logits come before it, 0-based
  float logprob = 0.0f;    // log-softmax of the raw logits at `token`
  int32_t bad_logits = 0;  // 1: NaN, +∞ or nothing to choose; token is 0 (or the scored one)
};

// Lives in device memory across steps.
struct SamplerState {
  int32_t* last_tokens = nullptr;  // [max_slots]
  // [num_counts_rows, V]: how often a slot generated each id. Only slots with penalties own a row.
  int32_t* counts = nullptr;
};

enum class SamplerKernel : uint8_t {
  kGreedy,  // every row is padding or takes the highest raw logit, and no more
  kAny,
};
// The quickest kernel that serves these rows (in host memory, as they will be staged).
SamplerKernel SamplerKernelFor(std::span<const SamplerRow> rows);

// All pointers are device memory.
struct SampleRowsArgs {
  SamplerKernel kernel = SamplerKernel::kAny;
  int32_t num_rows = 0;              // R, padding included
  int32_t vocab_size = 0;            // V
  const float* logits = nullptr;     // [L, V]; left as they are
  const SamplerRow* rows = nullptr;  // [R]
  const int32_t* bias_ids = nullptr;
  const float* bias_values = nullptr;
  const int32_t* banned_ids = nullptr;
  const uint32_t* bitmasks = nullptr;  // [·, ⌈V/32⌉]: bit set = allowed
  SamplerState state;

  SampledToken* results = nullptr;  // [R]; padding rows keep what they held
  int32_t* top_ids = nullptr;     // [R, kMaxTopLogprobs], best first, min(num_logprobs, V) written
  float* top_logprobs = nullptr;  // [R, kMaxTopLogprobs]
};
// Also counts the drawn token in the row's counts and leaves it in last_tokens (bad rows: token 0).
void SampleRows(Stream stream, const SampleRowsArgs& args);

// A slot with penalties begins: its counts become those of the tokens generated so far (none, but
// for a sequence that comes back after retraction).
struct CountsStart {
  int32_t counts_row = -1;  // −1: padding
  int32_t begin = 0;        // range of StartCountsArgs::outputs
  int32_t end = 0;
};
struct StartCountsArgs {
  int32_t num_starts = 0;
  int32_t vocab_size = 0;
  const CountsStart* starts = nullptr;  // [num_starts], device memory; different rows
  const int32_t* outputs = nullptr;     // device memory
  SamplerState state;
};
void StartCounts(Stream stream, const StartCountsArgs& args);

// The definitions, over host memory.
void SampleRowsReference(const SampleRowsArgs& args);
void StartCountsReference(const StartCountsArgs& args);

}  // namespace hayate::ops
