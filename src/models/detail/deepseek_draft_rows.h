#pragma once
// The rows of a drafter's batch that want guesses, as one query each or as a block of them.

#include <cstdint>
#include <span>
#include <vector>

#include "models/draft_model.h"
#include "ops/drafting/proposals.h"
#include "tensor/workspace.h"

namespace hayate::models {

// N rows of `tokens_per_row` queries each. In the workspace.
struct ProposalRows {
  int32_t count = 0;                   // N
  const int32_t* last = nullptr;       // [N] the row's last token in the batch
  const int32_t* positions = nullptr;  // [N] p of the row
  const int32_t* anchors = nullptr;    // [N] the token at p + 1
};
inline ops::Proposals ProposalsOf(const DraftBatch& batch) {
  return {batch.num_proposals, batch.proposal_rows};
}
ProposalRows TakeProposals(Stream stream, const DraftBatch& batch, Workspace& workspace);

// The same rows over their page tables in `rows`, each of `tokens_per_row` queries. `ahead`: how
// many tokens beyond p their entries reach.
ops::AttentionRows TakeProposalRows(Stream stream, const DraftBatch& batch,
                                    const ops::AttentionRows& rows, int32_t tokens_per_row,
                                    int32_t ahead, Workspace& workspace);
int64_t ProposalBytes(int64_t max_proposals);

// to[t] = features[feature_rows[t]]: to [T, F] f32.
void GatherFeatures(Stream stream, const DraftBatch& batch, TensorView to);

}  // namespace hayate::models
