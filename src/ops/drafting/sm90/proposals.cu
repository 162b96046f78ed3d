// A thread per row, query or token. Bound: a launch.

#include "base/align.h"
#include "ops/attention/sm90/rows.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "ops/drafting/sm90/drafting.h"

namespace hayate::ops::sm90 {
namespace {

constexpr int kThreads = 128;

__device__ __forceinline__ int32_t ThreadIndex() {
  return static_cast<int32_t>(blockIdx.x * kThreads + threadIdx.x);
}

template <typename Args>
void Launch(const Stream& stream, void (*kernel)(Args), int32_t count, const Args& args) {
  LaunchDependent(stream, kernel, static_cast<unsigned>(CeilDiv(count, kThreads)), kThreads, 0,
                  args);
}

__global__ void __launch_bounds__(kThreads)
    ProposalsKernel(const __grid_constant__ ListProposalsArgs a) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int32_t n = ThreadIndex();
  if (n >= a.proposals.count) return;
  const int32_t last = a.batch.q_begin[a.proposals.rows[n] + 1] - 1;
  a.last[n] = last;
  a.last_positions[n] = a.positions[last];
  a.anchors[n] = a.next_ids[last];
}

__global__ void __launch_bounds__(kThreads)
    ProposalRowsKernel(const __grid_constant__ ProposalRowsArgs a) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int32_t n = ThreadIndex();
  if (n > a.proposals.count) return;
  a.q_begin[n] = n * a.tokens_per_row;
  if (n == a.proposals.count) return;
  const int32_t row = a.proposals.rows[n];
  a.kv_len[n] = a.batch.kv_len[row] + a.ahead;
  a.table_row[n] = a.batch.table_row == nullptr ? row : a.batch.table_row[row];
}

__global__ void __launch_bounds__(kThreads)
    ShiftKernel(const __grid_constant__ ShiftPositionsArgs a) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int32_t n = ThreadIndex();
  if (n >= a.count) return;
  const int32_t position = a.from[n] + a.by;
  a.positions[n] = position;
  if (a.kv_len != nullptr) a.kv_len[n] = position + 1;
}

__global__ void __launch_bounds__(kThreads)
    BlocksKernel(const __grid_constant__ DraftBlocksArgs a) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int32_t q = ThreadIndex();
  if (q >= a.count * a.block) return;
  const int32_t n = q / a.block, place = q % a.block;
  a.row[q] = n;
  a.place[q] = place;
  a.context_end[q] = a.last_positions[n];
  a.positions[q] = a.last_positions[n] + 1 + place;
  a.token_ids[q] = place == 0 ? a.anchors[n] : a.noise_token;
  a.selected_count[q] = a.block;
  for (int32_t k = 0; k < a.block; ++k) a.selected[int64_t{q} * a.block + k] = k;
  if (place == 0) a.pages[n] = n;
}

// Of the ascending rows, how many lie before `row`.
__device__ int32_t ProposalsBefore(const Proposals& proposals, int32_t row) {
  int32_t low = 0, high = proposals.count;
  while (low < high) {
    const int32_t middle = (low + high) / 2;
    if (proposals.rows[middle] < row) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

// Tokens, then rows.
__global__ void __launch_bounds__(kThreads)
    AnchorsKernel(const __grid_constant__ AddAnchorsArgs a) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int32_t i = ThreadIndex();
  if (i < a.num_tokens) {
    const int32_t to = i + ProposalsBefore(a.proposals, RowOfToken(a.batch, i));
    a.out_ids[to] = a.token_ids[i];
    a.out_positions[to] = a.positions[i];
    return;
  }
  const int32_t row = i - a.num_tokens;
  if (row >= a.batch.num_rows) return;
  const int32_t before = ProposalsBefore(a.proposals, row);
  const bool proposes = before < a.proposals.count && a.proposals.rows[before] == row;
  const int32_t end = a.batch.q_begin[row + 1], length = a.batch.kv_len[row];
  if (row == 0) a.q_begin[0] = 0;
  a.q_begin[row + 1] = end + before + (proposes ? 1 : 0);
  a.kv_len[row] = length + (proposes ? 1 : 0);
  if (!proposes) return;
  a.out_ids[end + before] = a.next_ids[end - 1];
  a.out_positions[end + before] = length;
  a.anchors[before] = end + before;
}

}  // namespace

void ListProposals(Stream stream, const ListProposalsArgs& args) {
  if (args.proposals.count == 0) return;
  Launch(stream, ProposalsKernel, args.proposals.count, args);
  CUDA_CHECK_LAUNCH(stream, "list_proposals", args.proposals.count);
}

void ListProposalRows(Stream stream, const ProposalRowsArgs& args) {
  Launch(stream, ProposalRowsKernel, args.proposals.count + 1, args);
  CUDA_CHECK_LAUNCH(stream, "list_proposal_rows", args.proposals.count);
}

void ShiftPositions(Stream stream, const ShiftPositionsArgs& args) {
  if (args.count == 0) return;
  Launch(stream, ShiftKernel, args.count, args);
  CUDA_CHECK_LAUNCH(stream, "shift_positions", args.count);
}

void ListDraftBlocks(Stream stream, const DraftBlocksArgs& args) {
  if (args.count == 0) return;
  Launch(stream, BlocksKernel, args.count * args.block, args);
  CUDA_CHECK_LAUNCH(stream, "list_draft_blocks", args.count, args.block);
}

void AddAnchors(Stream stream, const AddAnchorsArgs& args) {
  Launch(stream, AnchorsKernel, args.num_tokens + args.batch.num_rows, args);
  CUDA_CHECK_LAUNCH(stream, "add_anchors", args.num_tokens, args.batch.num_rows);
}

}  // namespace hayate::ops::sm90
