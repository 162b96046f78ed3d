#pragma once
// The rule that decides which drafts stand. At every position of a row the target's own token is
// drawn, with the sampler, seed and random number that a plain step would use there; a draft stands
// while it equals that draw. What a row brings is therefore what plain steps would have brought,
// token for token, whoever drafted and however well (docs/speculation.md).

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/step_plan.h"

namespace hayate::spec {

struct Verdict {
  TokenId token;  // what the row brings at this position
  bool goes_on;   // a draft stands here: draw at the next position too
};

// Of draw i = 0 … drafts.size(); forced_accepts as the row's.
inline Verdict Verify(std::span<const TokenId> drafts, int32_t forced_accepts, size_t i,
                      TokenId drawn) {
  if (i == drafts.size()) return {drawn, false};
  if (forced_accepts < 0) return {drawn, drawn == drafts[i]};
  const bool stands = i < static_cast<size_t>(forced_accepts);
  return {stands ? drafts[i] : drawn, stands};
}

inline std::span<const TokenId> DraftsOf(const StepPlan& plan, const StepRow& row) {
  if (row.num_drafts == 0) return {};
  const int32_t first = row.first_token + row.num_tokens() - row.num_drafts;
  return std::span(plan.tokens)
      .subspan(static_cast<size_t>(first), static_cast<size_t>(row.num_drafts));
}

inline Verdict Verify(const StepPlan& plan, const StepRow& row, int32_t i, TokenId drawn) {
  return Verify(DraftsOf(plan, row), row.forced_accepts, static_cast<size_t>(i), drawn);
}

}  // namespace hayate::spec
