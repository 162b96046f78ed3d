#pragma once
// One step as data: the scheduler writes it, the workers of all ranks carry it out. The only way
// from sched to exec; values only, so it can cross to another node.
//
// Plan k+1 is written before the tokens of step k are known. A row then says kLateToken: the device
// takes the token that the slot sampled last. Everything in a plan takes effect in this order:
//   starts → page updates → copies → forward over all rows → sample.

#include <cstdint>
#include <memory>
#include <vector>

#include "core/ids.h"
#include "core/sampling_params.h"
#include "core/token_masks.h"

namespace hayate {

// A slot begins a new sequence (or one that comes back after retraction): forget what it held.
struct SlotStart {
  SlotId slot;
  SamplingParams sampling;
  LogprobParams logprobs;
  int32_t prompt_length = 0;     // positions before the first generated token
  std::vector<TokenId> outputs;  // already generated: penalties count them
};

// Entry `index` of the slot's page table in `group` names `page` from this step on (kNoPage:
// dropped).
struct PageUpdate {
  SlotId slot;
  int32_t group;
  int32_t index;  // covers positions [index × page tokens, (index + 1) × page tokens)
  PageId page;
};

// A whole page copied before the forward pass: a state snapshot taken or put back.
struct PageCopy {
  int32_t group;
  PageId from;
  PageId to;
};

// Positions [begin, end) of one sequence. Decode, a chunk of prefill and verification of drafts are
// the same row type with different ranges.
struct StepRow {
  SlotId slot;
  int32_t begin;
  int32_t end;
  int32_t first_token;  // index into StepPlan::tokens of position `begin`, or kLateToken
  bool samples;         // draw a token from the logits of position end − 1
  // Prompt logprobs: the logits at positions [score_begin, score_begin + num_scored), all in this
  // row, score the tokens that follow them.
  int32_t score_begin;
  int32_t num_scored;
  int32_t mask = -1;  // of a row that samples under a grammar: its row of StepPlan::masks

  int32_t num_tokens() const { return end - begin; }
};

// The row's only token is the one its slot sampled last, known to the device alone.
inline constexpr int32_t kLateToken = -1;

struct StepPlan {
  uint64_t step = 0;  // counts up by one
  std::vector<SlotStart> starts;
  std::vector<PageUpdate> page_updates;
  std::vector<PageCopy> copies;
  std::vector<StepRow> rows;    // at most one per slot
  std::vector<TokenId> tokens;  // the rows' known tokens; a row that scores its last position is
                                // followed by the token after it
  int32_t num_tokens = 0;       // Σ rows' num_tokens()
  int32_t num_masks = 0;        // rows with a mask
  // Null without such rows. Written after the plan was submitted: sampling alone waits for it.
  std::shared_ptr<const TokenMasks> masks;

  bool empty() const { return rows.empty(); }
  void Clear() {
    starts.clear();
    page_updates.clear();
    copies.clear();
    rows.clear();
    tokens.clear();
    num_tokens = 0;
    num_masks = 0;
    masks.reset();
  }
};

}  // namespace hayate
