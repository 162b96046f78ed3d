#pragma once
// A StepPlan turned into the arrays of a ForwardBatch, and the map from plan rows to rows of
// logits. One per rank, reused every step without allocating. Owner: the rank's thread.

#include <cstdint>
#include <span>
#include <vector>

#include "comm/rank_layout.h"
#include "core/step_plan.h"
#include "exec/slot_tables.h"
#include "models/forward_batch.h"

namespace hayate::exec {

struct StepLimits {
  int32_t max_rows = 0;        // slots
  int32_t max_tokens = 0;      // T of one step
  int32_t max_logits = 0;      // L of one step
  int32_t page_tokens = 0;     // P
  int32_t max_slot_pages = 0;  // pages of the longest sequence
  int32_t num_groups = 0;
};

// Which rows of the logits belong to a plan row.
struct RowLogits {
  int32_t sample = -1;       // first of the num_drafts + 1 logits rows to draw from, or −1
  int32_t score_begin = -1;  // first logits row of the prompt positions to score
  int32_t score_count = 0;
  int32_t score_token = 0;  // index into StepPlan::tokens of the token that score_begin predicts
};

class StagedStep {
 public:
  // Takes the rows of one dp rank alone: the others' have no logits here.
  StagedStep(const StepLimits& limits, const comm::RankLayout& layout, int dp_rank);
  explicit StagedStep(const StepLimits& limits) : StagedStep(limits, {}, 0) {}

  // `last_tokens` [max_rows] holds what each slot sampled last. The batch's logits pointer is
  // `logits`.
  void Build(const StepPlan& plan, const SlotTables& tables, const int32_t* last_tokens,
             float* logits);

  // Of the step that was built: where its hidden states go; null: nowhere.
  void SetHidden(float* hidden) { batch_.hidden = hidden; }

  const models::ForwardBatch& batch() const { return batch_; }
  // The plan rows that are the batch's rows, in its order.
  std::span<const int32_t> own_rows() const { return own_rows_; }
  const RowLogits& logits_of(size_t plan_row) const { return row_logits_[plan_row]; }

 private:
  void AddRow(const StepPlan& plan, const StepRow& row, const int32_t* last_tokens);
  void GatherPages(const SlotTables& tables);

  void CountRow(const StepRow& row);

  StepLimits limits_;
  comm::RankLayout layout_;
  int dp_rank_;
  std::vector<int32_t> own_rows_;                 // [R] the dp rank's, in the plan
  std::vector<SlotId> own_slots_;                 // [R] of them
  std::vector<int32_t> num_tokens_, num_logits_;  // per dp rank
  std::vector<int32_t> tokens_per_rank_, logits_per_rank_;
  std::vector<int32_t> token_ids_;                 // [T]
  std::vector<int32_t> positions_;                 // [T]
  std::vector<int32_t> q_begin_;                   // [R + 1]
  std::vector<int32_t> kv_len_;                    // [R]
  std::vector<int32_t> logits_index_;              // [L]
  std::vector<std::vector<int32_t>> page_tables_;  // per group [R, stride]
  std::vector<ops::AttentionRows> rows_;           // per group
  std::vector<int32_t> window_begin_, settled_;    // [R]
  std::vector<RowLogits> row_logits_;              // [rows of the plan]
  models::ForwardBatch batch_;
};

}  // namespace hayate::exec
