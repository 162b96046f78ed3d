#include "models/detail/deepseek_draft_rows.h"

#include <algorithm>

namespace hayate::models {

ProposalRows TakeProposals(const DraftBatch& batch, Workspace& workspace) {
  const int32_t count = batch.num_proposals;
  int32_t* last = workspace.TakeArray<int32_t>(count);
  int32_t* positions = workspace.TakeArray<int32_t>(count);
  int32_t* anchors = workspace.TakeArray<int32_t>(count);
  for (int32_t n = 0; n < count; ++n) {
    last[n] = batch.rows[0].q_begin[batch.proposal_rows[n] + 1] - 1;
    positions[n] = batch.positions[last[n]];
    anchors[n] = batch.next_ids[last[n]];
  }
  return {count, last, positions, anchors};
}

ops::AttentionRows TakeProposalRows(const DraftBatch& batch, const ops::AttentionRows& rows,
                                    int32_t tokens_per_row, int32_t ahead, Workspace& workspace) {
  const int32_t count = batch.num_proposals;
  int32_t* q_begin = workspace.TakeArray<int32_t>(count + 1);
  int32_t* kv_len = workspace.TakeArray<int32_t>(count);
  int32_t* table_row = workspace.TakeArray<int32_t>(count);
  q_begin[0] = 0;
  for (int32_t n = 0; n < count; ++n) {
    const int32_t row = batch.proposal_rows[n];
    q_begin[n + 1] = (n + 1) * tokens_per_row;
    kv_len[n] = rows.kv_len[row] + ahead;
    table_row[n] = rows.table_row == nullptr ? row : rows.table_row[row];
  }
  return {.num_rows = count,
          .q_begin = q_begin,
          .kv_len = kv_len,
          .page_table = rows.page_table,
          .page_table_stride = rows.page_table_stride,
          .table_row = table_row};
}

int64_t ProposalBytes(int64_t max_proposals) {
  return 6 * (max_proposals + 1) * static_cast<int64_t>(sizeof(int32_t)) +
         6 * static_cast<int64_t>(Workspace::kAlignment);
}

void GatherFeatures(const DraftBatch& batch, int64_t width, float* to) {
  for (int64_t t = 0; t < batch.num_tokens; ++t) {
    std::copy_n(batch.features + batch.feature_rows[t] * width, width, to + t * width);
  }
}

}  // namespace hayate::models
