#pragma once
// A model that guesses what the target model will draw: MTP heads, DSpark, or a small model of its
// own. It runs on every rank behind the target's forward pass and sampling, over the same page
// tables: its cache groups follow the target's in the layout of the process, so one prefix hit
// serves both. A guess costs time when it is wrong, and never an answer: what is drawn is the
// target's (docs/speculation.md).
//
// Of a step it sees what is committed and no more: tokens that the step verified and refused are
// not in its batch. One step is
//
//   target: forward, draw → Advance(batch) → Next(0) → draw → Next(1) → draw → …  k draws
//
// where each draw of a row takes the logits that Next wrote, with the request's own sampling
// parameters and random numbers, and is exec's. The ranks of an attention group are equal: equal
// batches, equal tokens. Where the target's rows travel to their experts a drafter's stay: every
// attention group has all of the drafter, and runs it for the rows of its dp rank. Owner: the
// rank's thread.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "models/model.h"
#include "models/registry.h"
#include "ops/attention/paged_attention.h"
#include "tensor/cache_layout.h"
#include "weights/checkpoint.h"

namespace hayate::models {

// What a step committed, T tokens of R rows back to back, and which rows want guesses. All
// pointers are device memory.
//
//   row r   committed positions  b … p │ p + 1: the anchor, drawn last, not computed yet
//                                      │ p + 2 …: to be guessed
struct DraftBatch {
  int32_t num_tokens = 0;                 // T
  const int32_t* token_ids = nullptr;     // [T]
  const int32_t* next_ids = nullptr;      // [T] the token one position later: the anchor at a row's
                                          // end, or the prompt's next token in an unfinished one
  const int32_t* positions = nullptr;     // [T]
  const int32_t* feature_rows = nullptr;  // [T] the token's row of `features`
  const float* features = nullptr;        // [·, F] what the target left of each token; null: F = 0

  // One per cache group of the drafter, in its order; q_begin [R + 1] and kv_len [R] (= p + 1) are
  // equal in all. The page tables of a proposing row reach to position p + max_drafts().
  std::span<const ops::AttentionRows> rows;

  int32_t num_proposals = 0;               // N rows want guesses
  const int32_t* proposal_rows = nullptr;  // [N] of [0, R), ascending
};

class DraftModel {
 public:
  virtual ~DraftModel() = default;

  // Groups beside the target's, with its page_tokens; may be empty. Equal on every rank.
  virtual const std::vector<CacheGroup>& cache_groups() const = 0;
  // Bytes of one page of a group on this rank, as Model::page_bytes.
  virtual int64_t page_bytes(int group) const = 0;
  // The most guesses a row can get in one step.
  virtual int32_t max_drafts() const = 0;
  // Whether Next says how sure it is.
  virtual bool has_confidence() const = 0;
  // Bytes that Advance and Next take over at most `max_tokens` tokens and `max_proposals` rows.
  virtual int64_t workspace_bytes(int64_t max_tokens, int64_t max_proposals) const = 0;
  virtual int64_t weight_bytes() const = 0;

  // Takes in what the step committed: writes the entries of positions b … p. Called for every step,
  // with or without proposals. Context pools are those of the drafter's groups alone. What Next
  // needs of it may stay in the workspace until the last Next of the step.
  virtual void Advance(const DraftBatch& batch, const ForwardContext& context) = 0;
  // The logits of guess i, i = 0, 1, … < max_drafts(), for all N proposing rows of the last
  // Advance. tokens [N]: for i = 0 the anchors, then the guesses before. Writes this rank's slice
  // of the vocabulary to logits [N, V], f32 (on the CPU one buffer serves all ranks; the caller's
  // barrier makes the whole visible), and, with has_confidence(), to confidences [N], on every
  // rank, the probability that the target draws guess i when it drew those before. Entries it
  // writes at positions > p are written again by a later Advance before anybody reads them.
  virtual void Next(int32_t i, const int32_t* tokens, float* logits, float* confidences,
                    const ForwardContext& context) = 0;
};

// Loads the drafter options.draft for `target`, which was loaded with the same options and outlives
// it: embedding and head may be shared. `checkpoint` is the target's, or the draft model's own.
// kUnsupported where the checkpoint holds no such drafter, naming the field that says so.
Result<std::unique_ptr<DraftModel>> LoadDraftModel(const weights::Checkpoint& checkpoint,
                                                   const LoadOptions& options, const Model& target);

}  // namespace hayate::models
