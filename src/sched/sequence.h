#pragma once
// A request inside the engine. Owned by the Scheduler, changed by the scheduler (planning) and by
// the engine's commit (tokens). Owner: engine thread.
//
//   positions  0 ........... planned ....... tokens.size() ....... length()
//              computed, or in a submitted step │ known, not planned │ sampled in flight, unknown
//              here
//
// While a row with drafts is in flight, planned lies at length() or beyond: nothing more is planned
// until its commit says which of the drafts stand.

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "core/ids.h"
#include "core/request.h"
#include "kv/sequence_cache.h"

namespace hayate::sched {

struct Sequence {
  Request request;
  uint64_t arrival = 0;         // order of arrival, unique
  std::vector<TokenId> tokens;  // prompt, then what was generated and committed
  int32_t planned = 0;          // positions [0, planned) are in submitted steps
  int32_t late = 0;  // tokens sampled by steps in flight; of a row with drafts the first alone
  // Guesses of the tokens behind the last known one, for the next row; whoever makes them replaces
  // them before every plan.
  std::vector<TokenId> drafts;
  int32_t forced_accepts = -1;               // as StepRow's, of those drafts
  SlotId slot{-1};                           // −1 while waiting
  bool slot_started = false;                 // a submitted or current plan carries its SlotStart
  std::unique_ptr<kv::SequenceCache> cache;  // null while waiting

  // Prompt positions [score_next, prompt_length − 1) still need logits for prompt logprobs. A
  // retraction does not lose what was scored.
  int32_t score_next = std::numeric_limits<int32_t>::max();

  int32_t cached_tokens = 0;  // of the prompt, at first admission
  bool admitted_before = false;
  int32_t retractions = 0;
  int32_t num_verifies = 0;         // committed rows with drafts
  int32_t num_drafts = 0;           // of those rows
  int32_t num_accepted_drafts = 0;  // of those
  int32_t bypassed = 0;             // admissions that passed it by, under lpm
  int64_t admitted_ns = 0;
  int64_t last_token_ns = 0;  // 0 before the first token

  int32_t prompt_length() const { return static_cast<int32_t>(request.prompt.size()); }
  int32_t known() const { return static_cast<int32_t>(tokens.size()); }
  // Counting tokens in flight.
  int32_t length() const { return known() + late; }
  int32_t num_generated() const { return known() - prompt_length(); }
  bool running() const { return slot.value >= 0; }
  // Tokens that may still be sampled, beyond those in flight.
  int32_t remaining_output() const {
    return request.sampling.max_new_tokens - (length() - prompt_length());
  }
  bool wants_sample() const { return remaining_output() > 0; }
  // Its next row is the last known token alone: drafts can follow it.
  bool decodes_known() const { return running() && late == 0 && planned == known() - 1; }
  bool wants_scores() const { return score_next < prompt_length() - 1; }
  // Whether another row must be planned: more output is wanted, or a prompt without output is
  // unfinished.
  bool wants_row() const {
    if (request.sampling.max_new_tokens == 0) return planned < prompt_length();
    return wants_sample() && planned < length();
  }
};

}  // namespace hayate::sched
