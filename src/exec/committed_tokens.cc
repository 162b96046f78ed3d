#include "exec/committed_tokens.h"

#include <algorithm>

namespace hayate::exec {

void CommittedTokens::Clear() {
  for (auto* list : {&token_ids, &next_ids, &positions, &feature_rows, &kv_len, &proposal_rows,
                     &plan_rows, &proposal_plan_rows, &anchors}) {
    list->clear();
  }
  q_begin.assign(1, 0);
}

void CommittedTokens::Add(int32_t plan_row, const StepRow& row, std::span<const TokenId> tokens,
                          int32_t first_feature, const RowResult& result) {
  // Of a row with drafts as many tokens stand as it brought: the known one, and right guesses.
  const auto num_drawn = static_cast<int32_t>(result.tokens.size());
  const int32_t num_stand = row.num_tokens() - row.num_drafts + std::max(0, num_drawn - 1);
  if (row.proposes && num_drawn > 0) {
    proposal_rows.push_back(num_rows());
    proposal_plan_rows.push_back(plan_row);
    anchors.push_back(result.tokens.back());
  }
  plan_rows.push_back(plan_row);
  kv_len.push_back(row.begin + num_stand);
  for (int32_t i = 0; i < num_stand; ++i) {
    token_ids.push_back(tokens[static_cast<size_t>(i)]);
    positions.push_back(row.begin + i);
    feature_rows.push_back(first_feature + i);
    next_ids.push_back(i + 1 < num_stand ? tokens[static_cast<size_t>(i) + 1] : 0);
  }
  // Without a token behind it the sequence ends here, and nobody reads the entry.
  const TokenId next = num_drawn > 0 ? result.tokens.back() : row.next_token;
  next_ids.back() = std::max(next, 0);
  q_begin.push_back(num_tokens());
}

}  // namespace hayate::exec
