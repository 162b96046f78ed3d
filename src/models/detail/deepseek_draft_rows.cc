#include "models/detail/deepseek_draft_rows.h"

#include <limits>

#include "ops/gather/copy_columns.h"

namespace hayate::models {

ProposalRows TakeProposals(Stream stream, const DraftBatch& batch, Workspace& workspace) {
  const int32_t count = batch.num_proposals;
  int32_t* last = workspace.TakeArray<int32_t>(count);
  int32_t* positions = workspace.TakeArray<int32_t>(count);
  int32_t* anchors = workspace.TakeArray<int32_t>(count);
  ops::ListProposals(stream, {.batch = batch.rows[0],
                              .proposals = ProposalsOf(batch),
                              .positions = batch.positions,
                              .next_ids = batch.next_ids,
                              .last = last,
                              .last_positions = positions,
                              .anchors = anchors});
  return {count, last, positions, anchors};
}

ops::AttentionRows TakeProposalRows(Stream stream, const DraftBatch& batch,
                                    const ops::AttentionRows& rows, int32_t tokens_per_row,
                                    int32_t ahead, Workspace& workspace) {
  const int32_t count = batch.num_proposals;
  int32_t* q_begin = workspace.TakeArray<int32_t>(count + 1);
  int32_t* kv_len = workspace.TakeArray<int32_t>(count);
  int32_t* table_row = workspace.TakeArray<int32_t>(count);
  ops::ListProposalRows(stream, {.batch = rows,
                                 .proposals = ProposalsOf(batch),
                                 .tokens_per_row = tokens_per_row,
                                 .ahead = ahead,
                                 .q_begin = q_begin,
                                 .kv_len = kv_len,
                                 .table_row = table_row});
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

void GatherFeatures(Stream stream, const DraftBatch& batch, TensorView to) {
  // How many rows of features there are is the caller's to know.
  const TensorView features{reinterpret_cast<std::byte*>(const_cast<float*>(batch.features)),
                            DType::kF32,
                            {std::numeric_limits<int32_t>::max(), to.shape[1]}};
  ops::CopyColumns(stream, {.out = to, .from = features, .index = batch.feature_rows});
}

}  // namespace hayate::models
