#pragma once
// What the engine tells the owner of a request: new tokens, and at last how it ended.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/status.h"
#include "core/ids.h"

namespace hayate {

enum class FinishReason : uint8_t {
  kStop,    // a stop token; `matched_stop` says which
  kLength,  // max_new_tokens or the context's end
  kAbort,   // cancelled, deadline, or an engine error; `status` says which
};

// One position's log-probabilities.
struct TokenLogprob {
  TokenId token;
  float logprob;
  int32_t rank = 0;                              // 0-based place of `token` by probability
  std::vector<std::pair<TokenId, float>> top;    // best first
  std::vector<std::pair<TokenId, float>> asked;  // LogprobParams::token_ids, in their order
};

struct TokenEvent {
  RequestId id;
  std::vector<TokenId> tokens;         // in order; a speculative step brings several
  std::vector<TokenLogprob> logprobs;  // one per token, when asked for
  // Before the first token, when prompt_start ≥ 0: positions [max(prompt_start, 1), prompt length).
  std::vector<TokenLogprob> prompt_logprobs;

  std::vector<float> hidden;  // [H], a part of the sum that LogprobParams::hidden asks for

  std::optional<FinishReason> finish;   // set in the last event of a request, and only there
  std::optional<TokenId> matched_stop;  // the stop token is also the last of `tokens`
  Status status;                        // not ok only with kAbort

  int32_t cached_tokens = 0;  // of the prompt, served from the prefix cache
  int32_t retractions = 0;
  // Of the whole answer so far: steps that verified drafts, drafts they verified, drafts that
  // stood.
  int32_t num_verifies = 0;
  int32_t num_drafts = 0;
  int32_t num_accepted_drafts = 0;
};

}  // namespace hayate
