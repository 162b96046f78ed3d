#pragma once
// From logits to tokens, a row at a time. The order of operations is SamplingParams' (core), stated
// here again as the operator's definition:
//   penalties → bias → banned ids → mask → temperature → top-k → softmax → top-p → min-p → draw.
// A row's choice is a pure function of its logits and its arguments: not of its neighbours, not of
// the device (the CPU and CUDA draw the same token from equal logits).
//
// Probabilities are integers, so that sums are exact in any order: a token's mass is
// 2⁴⁰ · e^((logit − highest) / temperature), rounded (detail/mass.h). With the tokens sorted by
// adjusted logit, equal ones by id:
//   top-k  keeps the first k
//   top-p  keeps the shortest prefix that holds ⌈top_p · mass kept so far⌉
//   min-p  keeps masses of at least min_p · 2⁴⁰
//   draw   ⌊u · mass kept / 2⁶⁴⌋ for 64 bits u of Philox(seed, position), counted off in order of
//   id
//
// Greedy takes the highest adjusted logit. Ties go to the lower token id, everywhere.
// Penalties, for ids generated c > 0 times: divide a positive logit by the repetition penalty,
// multiply a negative one; then subtract frequency_penalty · c + presence_penalty.

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tensor/device.h"
#include "tensor/workspace.h"

namespace hayate::ops {

// Below this temperature a row is greedy.
inline constexpr float kGreedyTemperature = 1e-6f;

// Sampler input of one row. Pointers are device memory (on the CPU: plain).
struct SamplingRow {
  float* logits = nullptr;  // [V]; changed in place
  float temperature = 1.0f;
  int32_t top_k = 0;  // 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  float repetition_penalty = 1.0f;
  const int32_t* output_counts =
      nullptr;  // [V]: how often each id was generated; null: no penalties
  std::span<const std::pair<int32_t, float>> bias;
  std::span<const int32_t> banned;    // ids that cannot be drawn (min_new_tokens)
  const uint32_t* bitmask = nullptr;  // [⌈V/32⌉]: bit set = allowed; null: all
  uint64_t seed = 0;
  uint64_t position = 0;  // of the token being drawn: the random counter
  // Log-probabilities wanted with the token: −1 none, 0 the token's own, n: and the n best.
  int32_t num_logprobs = -1;
};

struct SamplingResult {
  int32_t token = 0;
  // NaN or +∞ among the raw or the adjusted logits, or nothing left to choose: token is 0.
  bool bad_logits = false;
  float logprob = 0.0f;                        // log-softmax of the raw logits at `token`
  int32_t rank = 0;                            // how many raw logits come before it, 0-based
  std::vector<std::pair<int32_t, float>> top;  // best first
};

// Draws for rows [0, R). On the CPU one rank may be given any subset of the step's rows.
void Sample(Stream stream, Workspace& workspace, int32_t vocab_size, std::span<SamplingRow> rows,
            std::span<SamplingResult> results);
int64_t SampleWorkspaceBytes(int32_t vocab_size);

// Log-probabilities of a given token, for prompt logprobs. `logits` is [V] and left as it is.
SamplingResult ScoreToken(std::span<const float> logits, int32_t token, int32_t num_top);

// The definition: sorts the whole vocabulary. Same results as Sample.
SamplingResult SampleReference(int32_t vocab_size, const SamplingRow& row);

}  // namespace hayate::ops
