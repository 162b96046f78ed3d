#pragma once
// The rule that decides which drafts stand. At every position of a row the target's own token is
// drawn, with the sampler, seed and random number that a plain step would use there; a draft stands
// while it equals that draw. What a row brings is therefore what plain steps would have brought,
// token for token, whoever drafted and however well (docs/speculation.md).

#include "core/step_plan.h"

namespace hayate::spec {

struct Verdict {
  TokenId token;  // what the row brings at this position
  bool goes_on;   // a draft stands here: draw at the next position too
};

// Of draw i of a row, i = 0 … num_drafts.
inline Verdict Verify(const StepPlan& plan, const StepRow& row, int32_t i, TokenId drawn) {
  if (i == row.num_drafts) return {drawn, false};
  const int32_t first_draft = row.first_token + row.num_tokens() - row.num_drafts;
  const TokenId draft = plan.tokens[static_cast<size_t>(first_draft + i)];
  if (row.forced_accepts < 0) return {drawn, drawn == draft};
  return i < row.forced_accepts ? Verdict{draft, true} : Verdict{drawn, false};
}

}  // namespace hayate::spec
