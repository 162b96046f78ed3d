// Computes: the moves of rows to their experts and of results back (token_exchange.h).
// Grid: rows (dispatch) or pairs of a row and a choice (combine), one a block at a time, at most
// kMaxBlocks; equal on all ranks, since a block meets the same block of the others.
// Traffic of a rank over its links: in, the rows with an expert here and 8 K bytes of each row of
// the others; back in, K rows of results for each own row, but for what lies on the rank itself.
// Bound: the links; a few rows are bound by the meetings, about 1 us each.

#include <algorithm>

#include "base/check.h"
#include "comm/cuda/peer_exchange.cuh"
#include "comm/cuda/token_exchange.h"

namespace hayate::comm::cuda {
namespace {

constexpr int kBoardUnits = static_cast<int>(sizeof(ExchangeBoard) / sizeof(uint4));

__device__ __forceinline__ uint32_t LoadWord(const void* from) {
  uint32_t value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// All ranks' boards, once they have met. [size], in shared memory.
__device__ __forceinline__ void ReadBoards(const ExchangePeers& peers, ExchangeBoard* boards) {
  const int unit = static_cast<int>(threadIdx.x);
  if (unit < peers.size * kBoardUnits) {
    const auto* from = reinterpret_cast<const uint4*>(&peers.memory[unit / kBoardUnits]->board);
    reinterpret_cast<uint4*>(boards)[unit] = LoadPeer(from + unit % kBoardUnits);
  }
  __syncthreads();
}

// The first rank that brought another number of rows than all expect, or −1.
__device__ __forceinline__ int UnexpectedRank(const ExchangeStep& step,
                                              const ExchangeBoard* boards) {
  for (int r = 0; r < step.peers.size; ++r) {
    if (boards[r].rows != step.first_row[r + 1] - step.first_row[r]) return r;
  }
  return -1;
}

__device__ __forceinline__ void ReportFault(const ExchangeStep& step, int rank, int64_t brought) {
  volatile ExchangeFault* fault = step.peers.fault;
  fault->rank = rank;
  fault->brought = static_cast<int32_t>(brought);
  fault->expected = step.first_row[rank + 1] - step.first_row[rank];
  __threadfence_system();
  fault->found = 1;
  *static_cast<volatile uint32_t*>(step.peers.poisoned) = 1;
}

__device__ __forceinline__ void CopyRow(uint4* to, const uint4* from, int64_t units) {
  for (int64_t i = threadIdx.x; i < units; i += kThreads) to[i] = LoadPeer(from + i);
}

// Rows that nobody sent: no expert here computes them.
__device__ __forceinline__ void LeaveOut(const ExchangeStep& step, int32_t* places,
                                         float* weights) {
  const int64_t count = int64_t{step.first_row[step.peers.size]} * step.choices;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kThreads) {
    places[i] = -1;
    weights[i] = 0.0f;
  }
}

__global__ void __launch_bounds__(kThreads, 2)
    DispatchKernel(const __grid_constant__ ExchangeStep step,
                   const __grid_constant__ ExchangeBoard shown, uint4* x, int32_t* places,
                   float* weights) {
  __shared__ ExchangeBoard boards[kMaxPeerRanks];
  WaitForPriorLaunches();
  const ExchangePeers& peers = step.peers;
  ExchangeMemory* own = peers.memory[peers.rank];
  const uint32_t epoch = own->epoch + 1;
  // Every block writes the same, so that what its partners read was written before they met. What
  // results were shown stays as it is.
  if (threadIdx.x == 0) {
    own->board.x = shown.x;
    own->board.experts = shown.experts;
    own->board.weights = shown.weights;
    own->board.rows = shown.rows;
  }
  const bool met = Meet(peers, 0, epoch);
  AllowNextLaunch();
  if (met) ReadBoards(peers, boards);
  const int unexpected = met ? UnexpectedRank(step, boards) : -1;
  if (!met || unexpected >= 0) {
    if (met && blockIdx.x == 0 && threadIdx.x == 0) {
      ReportFault(step, unexpected, boards[unexpected].rows);
    }
    LeaveOut(step, places, weights);
    return Finish(own, epoch);
  }
  int from = 0;
  for (int row = static_cast<int>(blockIdx.x); row < step.first_row[peers.size]; row += gridDim.x) {
    while (row >= step.first_row[from + 1]) ++from;
    const int64_t theirs = row - step.first_row[from];
    bool here = false;
    if (static_cast<int>(threadIdx.x) < step.choices) {
      const int64_t pair = theirs * step.choices + threadIdx.x;
      const int64_t to = int64_t{row} * step.choices + threadIdx.x;
      const auto expert = static_cast<int32_t>(LoadWord(boards[from].experts + pair));
      here = expert >= 0 && expert / step.per_rank == peers.rank;
      places[to] = here ? expert % step.per_rank : -1;
      weights[to] = __uint_as_float(LoadWord(boards[from].weights + pair));
    }
    if (!__syncthreads_or(here)) continue;
    CopyRow(x + row * step.row_units,
            reinterpret_cast<const uint4*>(boards[from].x) + theirs * step.row_units,
            step.row_units);
  }
  Finish(own, epoch);
}

__global__ void __launch_bounds__(kThreads, 2)
    CombineKernel(const __grid_constant__ ExchangeStep step, const std::byte* results, uint4* out) {
  __shared__ ExchangeBoard boards[kMaxPeerRanks];
  WaitForPriorLaunches();
  const ExchangePeers& peers = step.peers;
  ExchangeMemory* own = peers.memory[peers.rank];
  const uint32_t epoch = own->epoch + 1;
  if (threadIdx.x == 0) own->board.results = results;
  const bool met = Meet(peers, 0, epoch);
  if (met) {
    ReadBoards(peers, boards);
    const ExchangeBoard& mine = boards[peers.rank];
    const int first = step.first_row[peers.rank];
    const int64_t pairs = int64_t{step.first_row[peers.rank + 1] - first} * step.choices;
    for (int64_t pair = blockIdx.x; pair < pairs; pair += gridDim.x) {
      const int rank = mine.experts[pair] / step.per_rank;
      const int64_t theirs = int64_t{first} * step.choices + pair;
      CopyRow(out + pair * step.row_units,
              reinterpret_cast<const uint4*>(boards[rank].results) + theirs * step.row_units,
              step.row_units);
    }
  }
  Meet(peers, 1, epoch);  // nobody reads our rows or results any more
  AllowNextLaunch();
  Finish(own, epoch);
}

constexpr int kChooseThreads = 256;

struct ChooseParams {
  ReplicaTable table;
  const int32_t* chosen;  // [count]
  int64_t count;
  int32_t choices;
  int32_t turn;
  int32_t* physical;           // [count]
  unsigned long long* counts;  // [E] or null
  const int32_t* num_rows;     // or null
  int32_t first_row;
};

__global__ void __launch_bounds__(kChooseThreads) ChooseKernel(ChooseParams p) {
  WaitForPriorLaunches();
  AllowNextLaunch();
  const int64_t pair = int64_t{blockIdx.x} * kChooseThreads + threadIdx.x;
  if (pair >= p.count) return;
  const int32_t expert = p.chosen[pair];
  const int64_t row = pair / p.choices;
  const int32_t begin = p.table.first_replica[expert];
  const int32_t replicas = p.table.first_replica[expert + 1] - begin;
  p.physical[pair] = p.table.replicas[begin + (row + p.turn) % replicas];
  const bool is_padding = p.num_rows != nullptr && p.first_row + row >= *p.num_rows;
  if (p.counts != nullptr && !is_padding) atomicAdd(p.counts + expert, 1ull);
}

unsigned BlocksFor(const ExchangePeers& peers, int64_t items) {
  return static_cast<unsigned>(std::clamp<int64_t>(items, 1, peers.max_blocks));
}

}  // namespace

void LoadExchangeKernels(Device* device) {
  cudaFuncAttributes attributes;
  CUDA_CHECK(device, cudaFuncGetAttributes(&attributes, DispatchKernel));
  CUDA_CHECK(device, cudaFuncGetAttributes(&attributes, CombineKernel));
  CUDA_CHECK(device, cudaFuncGetAttributes(&attributes, ChooseKernel));
}

void DispatchRows(Stream stream, const ExchangeStep& step, const ExchangeBoard& own, std::byte* x,
                  int32_t* places, float* weights) {
  CHECK_LE(step.choices, kThreads);
  const int64_t rows = step.first_row[step.peers.size];
  LaunchDependent(stream, DispatchKernel, BlocksFor(step.peers, rows), kThreads, 0, step, own,
                  reinterpret_cast<uint4*>(x), places, weights);
  CUDA_CHECK_LAUNCH(stream, "dispatch_rows", rows, step.choices, step.row_units);
}

void CombineRows(Stream stream, const ExchangeStep& step, const std::byte* results,
                 std::byte* out) {
  const int64_t pairs = int64_t{step.first_row[step.peers.size]} * step.choices;
  LaunchDependent(stream, CombineKernel, BlocksFor(step.peers, pairs), kThreads, 0, step, results,
                  reinterpret_cast<uint4*>(out));
  CUDA_CHECK_LAUNCH(stream, "combine_rows", pairs, step.row_units);
}

void ChooseReplicaOf(Stream stream, const ReplicaTable& table, const ChooseReplicasArgs& args,
                     int32_t turn, int32_t* physical) {
  const int64_t count = args.shape.num_elements();
  const ChooseParams params = {.table = table,
                               .chosen = args.chosen,
                               .count = count,
                               .choices = static_cast<int32_t>(args.shape[1]),
                               .turn = turn,
                               .physical = physical,
                               .counts = reinterpret_cast<unsigned long long*>(args.counts),
                               .num_rows = args.num_rows,
                               .first_row = args.first_row};
  const auto blocks = static_cast<unsigned>((count + kChooseThreads - 1) / kChooseThreads);
  LaunchDependent(stream, ChooseKernel, blocks, kChooseThreads, 0, params);
  CUDA_CHECK_LAUNCH(stream, "choose_replicas", count);
}

}  // namespace hayate::comm::cuda
