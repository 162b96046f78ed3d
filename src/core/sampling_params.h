#pragma once
// How the next token is chosen from the logits. Validated once, at the API border; a request holds
// the values after defaults were filled in.

#include <cstdint>
#include <utility>
#include <vector>

#include "core/ids.h"

namespace hayate {

// The order of operations is fixed and the same for every request, whatever its batch mates use:
//   logits → penalties → logit bias → min_new_tokens ban → grammar mask → temperature
//          → top-k → softmax → top-p (over the top-k renormalised) → min-p → draw.
// Ties in sorting go to the lower token id. temperature 0 takes the highest logit after the mask.
struct SamplingParams {
  float temperature = 1.0f;  // ≥ 0; below 1e-6 means greedy
  int32_t top_k = 0;         // 0: off
  float top_p = 1.0f;        // (0, 1]
  float min_p = 0.0f;        // [0, 1]
  // Over the generated tokens only, as SGLang has it.
  float frequency_penalty = 0.0f;                     // [-2, 2]
  float presence_penalty = 0.0f;                      // [-2, 2]
  float repetition_penalty = 1.0f;                    // (0, 2]
  std::vector<std::pair<TokenId, float>> logit_bias;  // at most kMaxLogitBias
  static constexpr size_t kMaxLogitBias = 4096;

  // Random numbers are Philox(seed, position of the sampled token): the same seed gives the same
  // tokens in any batch. Requests that name no seed get a fresh one at the border.
  uint64_t seed = 0;

  int32_t max_new_tokens = 0;  // ≥ 0; 0 computes the prompt only (logprobs, prefix warming)
  int32_t min_new_tokens = 0;  // stop tokens cannot be drawn before
  bool ignore_eos = false;     // neither end-of-sequence ids nor stop_token_ids end the answer
  // Ids that end the answer: the model's end-of-sequence ids and the request's stop_token_ids.
  std::vector<TokenId> stop_token_ids;  // at most kMaxStopTokenIds
  static constexpr size_t kMaxStopTokenIds = 512;

  bool greedy() const { return temperature < 1e-6f; }
  bool has_penalties() const {
    return frequency_penalty != 0.0f || presence_penalty != 0.0f || repetition_penalty != 1.0f;
  }
};

// Which log-probabilities travel back with the tokens. They are log-softmax of the raw logits
// (temperature 1, before penalties and masks).
struct LogprobParams {
  bool enabled = false;            // of each generated token
  int32_t num_top = 0;             // alternatives per position, [0, kMaxTopLogprobs]
  int32_t prompt_start = -1;       // prompt positions ≥ this get logprobs too; −1: none
  std::vector<TokenId> token_ids;  // scored at every such position besides; at most kMaxTokenIds

  // The sum of the final hidden states at the positions that are scored or sampled, for embeddings;
  // prompt positions then bring no logprobs.
  bool hidden = false;

  static constexpr size_t kMaxTokenIds = 64;
  static constexpr int32_t kMaxTop = 20;
};

}  // namespace hayate
