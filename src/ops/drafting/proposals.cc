#include "ops/drafting/proposals.h"

#include "ops/drafting/sm90/drafting.h"
#include "tensor/cuda_build.h"

namespace hayate::ops {

void ListProposals(Stream stream, const ListProposalsArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::ListProposals(stream, args);
  }
  for (int32_t n = 0; n < args.proposals.count; ++n) {
    const int32_t last = args.batch.q_begin[args.proposals.rows[n] + 1] - 1;
    args.last[n] = last;
    args.last_positions[n] = args.positions[last];
    args.anchors[n] = args.next_ids[last];
  }
}

void ListProposalRows(Stream stream, const ProposalRowsArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::ListProposalRows(stream, args);
  }
  args.q_begin[0] = 0;
  for (int32_t n = 0; n < args.proposals.count; ++n) {
    const int32_t row = args.proposals.rows[n];
    args.q_begin[n + 1] = (n + 1) * args.tokens_per_row;
    args.kv_len[n] = args.batch.kv_len[row] + args.ahead;
    args.table_row[n] = args.batch.table_row == nullptr ? row : args.batch.table_row[row];
  }
}

void ShiftPositions(Stream stream, const ShiftPositionsArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::ShiftPositions(stream, args);
  }
  for (int32_t n = 0; n < args.count; ++n) {
    args.positions[n] = args.from[n] + args.by;
    if (args.kv_len != nullptr) args.kv_len[n] = args.positions[n] + 1;
  }
}

void ListDraftBlocks(Stream stream, const DraftBlocksArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::ListDraftBlocks(stream, args);
  }
  for (int32_t q = 0; q < args.count * args.block; ++q) {
    const int32_t n = q / args.block, place = q % args.block;
    args.row[q] = n;
    args.place[q] = place;
    args.context_end[q] = args.last_positions[n];
    args.positions[q] = args.last_positions[n] + 1 + place;
    args.token_ids[q] = place == 0 ? args.anchors[n] : args.noise_token;
    args.selected_count[q] = args.block;
    for (int32_t k = 0; k < args.block; ++k) args.selected[q * args.block + k] = k;
    if (place == 0) args.pages[n] = n;
  }
}

void AddAnchors(Stream stream, const AddAnchorsArgs& args) {
  if constexpr (kCudaBuild) {
    if (OnCuda(stream)) return sm90::AddAnchors(stream, args);
  }
  const AttentionRows& batch = args.batch;
  int32_t n = 0, to = 0;
  args.q_begin[0] = 0;
  for (int32_t r = 0; r < batch.num_rows; ++r) {
    for (int32_t t = batch.q_begin[r]; t < batch.q_begin[r + 1]; ++t, ++to) {
      args.out_ids[to] = args.token_ids[t];
      args.out_positions[to] = args.positions[t];
    }
    args.kv_len[r] = batch.kv_len[r];
    if (n < args.proposals.count && args.proposals.rows[n] == r) {
      args.out_ids[to] = args.next_ids[batch.q_begin[r + 1] - 1];
      args.out_positions[to] = args.kv_len[r]++;
      args.anchors[n++] = to++;
    }
    args.q_begin[r + 1] = to;
  }
}

}  // namespace hayate::ops
