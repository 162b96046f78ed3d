#pragma once
// What a step committed, as a drafter takes it: of every row the positions that stand, with the
// token behind each. On the host; reused every step without allocating. Owner: the rank's thread.

#include <cstdint>
#include <span>
#include <vector>

#include "core/step_plan.h"
#include "core/step_result.h"

namespace hayate::exec {

class CommittedTokens {
 public:
  void Clear();
  // Row `plan_row` of the plan: its tokens, drafts among them, which are rows `first_feature` … of
  // what the target left.
  void Add(int32_t plan_row, const StepRow& row, std::span<const TokenId> tokens,
           int32_t first_feature, const RowResult& result);

  int32_t num_rows() const { return static_cast<int32_t>(kv_len.size()); }
  int32_t num_tokens() const { return static_cast<int32_t>(token_ids.size()); }
  size_t num_proposals() const { return proposal_rows.size(); }

  // As models::DraftBatch has them.
  std::vector<int32_t> token_ids, next_ids, positions, feature_rows;  // [T]
  std::vector<int32_t> q_begin;                                       // [R + 1]
  std::vector<int32_t> kv_len;                                        // [R]
  std::vector<int32_t> proposal_rows;                                 // [N] of [0, R)
  // Beyond: the rows' place in the plan, and the anchor of each that wants guesses.
  std::vector<int32_t> plan_rows;           // [R]
  std::vector<int32_t> proposal_plan_rows;  // [N]
  std::vector<TokenId> anchors;             // [N]
};

}  // namespace hayate::exec
