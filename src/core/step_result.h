#pragma once
// What a step brought: the tokens each sampling row drew. The only way from exec back to engine.

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "core/ids.h"
#include "core/token_event.h"

namespace hayate {

struct RowResult {
  SlotId slot;
  // What was drawn: empty for a chunk that does not sample, 1 … num_drafts + 1 tokens otherwise.
  std::vector<TokenId> tokens;
  std::vector<TokenLogprob> logprobs;         // one per token, when the slot asked for them
  std::vector<TokenLogprob> prompt_logprobs;  // one per scored position
  std::vector<TokenId> drafts;           // the drafter's guesses of what follows, when it proposes
  std::vector<float> draft_confidences;  // one per draft, from a drafter that has them
  std::vector<float> hidden;  // [H], when the slot asked: Σ over the row's positions with logits
  // The logits behind the last of `tokens` held NaN or no finite value: the sequence must end with
  // an error, alone.
  bool bad_logits = false;

  // Empty again, with the memory of its vectors.
  void Reset(SlotId new_slot) {
    slot = new_slot;
    tokens.clear();
    logprobs.clear();
    prompt_logprobs.clear();
    drafts.clear();
    draft_confidences.clear();
    hidden.clear();
    bad_logits = false;
  }
};

struct StepResult {
  uint64_t step = 0;
  std::vector<RowResult> rows;  // one per plan row, same order
  Status status;                // not ok: the device failed, no row is valid
  int64_t device_ns = 0;        // time of forward and sampling, for metrics
  int64_t device_start_ns = 0;  // when they began, steady clock
};

}  // namespace hayate
