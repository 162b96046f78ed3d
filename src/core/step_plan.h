#pragma once
// One step as data: the scheduler writes it, the workers of all ranks carry it out. The only way
// from sched to exec; values only, so it can cross to another node.
//
// Plan k+1 is written before the tokens of step k are known. A row then says kLateToken: the device
// takes the token that the slot sampled last. Everything in a plan takes effect in this order:
//   starts → page updates → copies → forward over all rows → sample.
//
// Under DP attention a slot belongs to a dp rank: slot mod the number of them. A page id is one of
// that dp rank's pools, and no other computes the row.

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
  int32_t dp_rank = 0;  // whose pools
};

// Positions [begin, end) of one sequence. Decode, a chunk of prefill and verification of drafts are
// the same row type with different ranges. A row that verifies holds the last token that stands and
// the drafts behind it; a token is drawn at its first position, and at the position of each draft
// that equals the draw before it:
//
//   tokens        t    d1   d2   d3        num_drafts = 3
//   draws         d1   d2   x              d3 was wrong: the row brings d1 d2 x
struct StepRow {
  SlotId slot;
  int32_t begin;
  int32_t end;
  int32_t first_token;  // index into StepPlan::tokens of position `begin`, or kLateToken
  bool samples;         // draw from the logits of the last num_drafts + 1 positions
  // Prompt logprobs: the logits at positions [score_begin, score_begin + num_scored), all in this
  // row, score the tokens that follow them.
  int32_t score_begin;
  int32_t num_scored;
  // Of a row that samples under a grammar: the first of its num_drafts + 1 rows of StepPlan::masks.
  int32_t mask = -1;
  int32_t num_drafts = 0;  // the row's last tokens are guesses
  // ≥ 0: exactly so many drafts stand, whatever was drawn. Benches alone set it.
  int32_t forced_accepts = -1;
  // The drafter guesses what follows the row's draws; positions up to end + max_drafts have pages.
  bool proposes = false;
  TokenId next_token = -1;  // the token at position `end`, where the plan knows it
  // Of a row that computes the end of a reused prefix again, to bring back windows that prefixes do
  // not keep: positions before window_begin have no window entries, and of positions before
  // `settled` window entries alone are written, for all others are shared. 0: no such row.
  int32_t window_begin = 0;
  int32_t settled = 0;

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
  int32_t num_masks = 0;        // of all rows
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
