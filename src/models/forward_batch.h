#pragma once
// One step as a model sees it: T tokens of R rows (sequences), where their caches lie, and whose
// logits are wanted. Made by exec; every rank of an attention group gets an equal batch, which may
// be empty where rows travel to their experts. All pointers are device memory.

#include <cstdint>
#include <span>

#include "ops/attention/paged_attention.h"

namespace hayate::models {

struct ForwardBatch {
  int32_t num_tokens = 0;              // T
  const int32_t* token_ids = nullptr;  // [T], each in [0, V)
  const int32_t* positions = nullptr;  // [T], each in [0, max_context)

  // One per cache group of the model's layout, in its order. q_begin and kv_len are equal in all;
  // page tables differ. Rows lie back to back: row r owns tokens [q_begin[r], q_begin[r + 1]).
  std::span<const ops::AttentionRows> rows;

  // Rows that compute the end of a reused prefix again (StepRow::settled); null: there are none.
  // Of DeepSeek V4 and V4.1; settled positions only where the layout has replayed groups.
  const int32_t* window_begin = nullptr;  // [R] positions before have no window entries
  const int32_t* settled = nullptr;  // [R] of positions before, window entries alone are written

  int32_t num_logits = 0;                 // L
  const int32_t* logits_index = nullptr;  // [L] token indexes in [0, T), ascending
  // [L, V], f32. On the CPU one buffer serves all ranks: each writes its slice of the vocabulary,
  // and the caller's barrier makes the whole visible.
  float* logits = nullptr;
  // [L, H] f32, this rank's own: the final norm's output of the rows with logits; null: nobody
  // reads it. Only of models that give it (Model::gives_hidden).
  float* hidden = nullptr;

  // Where rows travel to their experts: how many each rank of the replica brings to a sparse layer,
  // and to the last one, which only the rows with logits reach. [ranks]
  std::span<const int32_t> tokens_per_rank;
  std::span<const int32_t> logits_per_rank;

  // [T, F] f32, F = Model::feature_width(), this rank's own; null: nobody reads them.
  float* features = nullptr;
};

}  // namespace hayate::models
