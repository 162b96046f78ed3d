#pragma once
// Decode attention of a step of one short row: the blocks of a cluster share the keys of a kv head,
// and each merges its slice of the features of all their warps. What a warp leaves goes straight
// into the shared memory of the blocks that merge it, so nothing travels through memory and no
// counter is waited for.
//
//   grid     kv heads × kRowBlocks, a cluster each
//   order    tile t belongs to warp t mod (kRowBlocks · kRowWarps); merged in a fixed order
//   traffic  2 · D elements a key and kv head, once; 4 · (D + 2) bytes a query and warp between
//            multiprocessors
//   in flight  as in decode_kernel.cuh; of a row of up to 2,048 keys of bf16 all at once, before
//            the launches ahead have ended. The tile that they write is fetched into the
//            second-level cache meanwhile
//   bound    latency: queries → scores → cluster → output
//   requires D a multiple of 4 · kRowBlocks

#include "ops/attention/sm90/decode_kernel.cuh"
#include "ops/detail/sm90/cluster.cuh"

namespace hayate::ops::sm90 {

inline constexpr int kRowWarps = 8;
inline constexpr int kRowParts = kRowBlocks * kRowWarps;  // what is merged, one a warp

struct RowParams {
  DecodeParams decode;
  const int32_t* kv_len;     // [1]
  const int32_t* table_row;  // [1], or null: 0
  int32_t num_tokens;
};

template <typename S>
struct RowShared {
  static constexpr int kQueries = 8 * S::kTiles;
  static constexpr int kSlice = S::kD / kRowBlocks;  // features that a block merges
  uint2 queries[S::kTiles * S::kSteps * 32];
  // Rows of a little more: lanes that read one query of many parts then use different banks.
  float2 max_sum[kRowParts][kQueries + 1];
  struct alignas(16) Sums {
    float of[kQueries][kSlice];
    float unused[4];
  } o[kRowParts];
};

// Asks for the bytes at `from`, without waiting, into the second-level cache. A warp.
template <int kBytes>
__device__ __forceinline__ void PrefetchLines(const void* from) {
#pragma unroll
  for (int line = threadIdx.x % 32; line < kBytes / 128; line += 32) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(from) + 128 * line));
  }
}

// A warp's state to the blocks that merge it.
template <typename S>
__device__ __forceinline__ void Send(const WarpState<S>& state, int32_t num_queries, int part,
                                     RowShared<S>* shared) {
  constexpr int kSlice = RowShared<S>::kSlice;
  static_assert(kSlice % 4 == 0 && kRowBlocks == 8);
  const int r = threadIdx.x % 32 / 4, j = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < S::kTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int query = 8 * n + 2 * j + e;
      const float sum = state.WholeSum(n, e);
      if (query >= num_queries) continue;
      *InBlock(&shared->max_sum[part][query], r) = make_float2(state.max[n][e], sum);
      if (state.max[n][e] == -INFINITY) continue;  // no key was visible: nobody reads the rest
#pragma unroll
      for (int m = 0; m < S::kRowTiles; m += 2) {
        const int feature = OutputFeature<S>(m);
        if (feature >= S::kD) continue;
        float* to = InBlock(&shared->o[part].of[query][feature % kSlice], feature / kSlice);
        *reinterpret_cast<float4*>(to) = make_float4(
            state.o[m][n][e], state.o[m][n][e + 2], state.o[m + 1][n][e], state.o[m + 1][n][e + 2]);
      }
    }
  }
}

// The parts of kLanes neighbouring lanes; each gets the sum.
template <int kLanes>
__device__ __forceinline__ void MergeLanes(Part* part) {
#pragma unroll
  for (int lane = 1; lane < kLanes; lane *= 2) {
    const float max = __shfl_xor_sync(~0u, part->max, lane);
    const float sum = __shfl_xor_sync(~0u, part->sum, lane);
    const float4 o =
        make_float4(__shfl_xor_sync(~0u, part->o.x, lane), __shfl_xor_sync(~0u, part->o.y, lane),
                    __shfl_xor_sync(~0u, part->o.z, lane), __shfl_xor_sync(~0u, part->o.w, lane));
    part->Add(max, sum, o);
  }
}

// Merges the block's slice of all parts and stores it. 16 lanes have four features of a query.
template <typename S>
__device__ __forceinline__ void StoreSlice(const DecodeParams& params, const DecodeItem& item,
                                           int32_t rank, const RowShared<S>& shared) {
  constexpr int kLanes = 16, kGroups = 32 * kRowWarps / kLanes;
  constexpr int kColumns = RowShared<S>::kSlice / 4;  // of a query
  const ItemQueries queries(params, item);
  const int lane = threadIdx.x % kLanes;
  const int32_t columns = queries.count * kColumns;
  // All lanes of a warp take the same number of turns.
  for (int turn = 0; turn < CeilDiv(columns, kGroups); ++turn) {
    const int column = turn * kGroups + threadIdx.x / kLanes;
    const int n = min(column, columns - 1) / kColumns, offset = column % kColumns * 4;
    Part part;
#pragma unroll
    for (int k = 0; k < kRowParts / kLanes; ++k) {
      const int p = k * kLanes + lane;
      const float2 max_sum = shared.max_sum[p][n];
      part.Add(max_sum.x, max_sum.y, *reinterpret_cast<const float4*>(&shared.o[p].of[n][offset]));
    }
    MergeLanes<kLanes>(&part);
    if (lane > 0 || column >= columns) continue;
    StoreOutput(params, item, queries, S::kD, n, rank * RowShared<S>::kSlice + offset, part);
  }
}

template <typename S>
__global__ __launch_bounds__(32 * kRowWarps,
                             1) void RowDecodeKernel(const RowParams params,
                                                     const PagedCache<typename S::Cache> cache) {
  using Walk = TileWalk<S, kRowParts>;
  extern __shared__ __align__(16) std::byte shared_bytes[];
  auto* shared = reinterpret_cast<RowShared<S>*>(shared_bytes);
  AllowNextLaunch();
  // Lengths and page tables changed before the step's first dependent launch.
  const int32_t kv_len = *params.kv_len;
  DecodeItem item = {};
  item.table_row = params.table_row == nullptr ? 0 : *params.table_row;
  item.kv_head = static_cast<uint16_t>(blockIdx.x / kRowBlocks);
  item.num_tokens = static_cast<uint8_t>(params.num_tokens);
  item.position = kv_len - params.num_tokens;
  const auto rank = static_cast<int32_t>(ClusterRank());
  const int part = static_cast<int>(threadIdx.x) / 32 * kRowBlocks + rank;
  const int32_t window = params.decode.window;
  const int32_t first_key = window > 0 ? max(0, item.position - window + 1) : 0;
  const int32_t first = first_key / S::kKeys + part, end = CeilDiv(kv_len, S::kKeys);
  const int32_t page =
      first < end ? Walk::PagesOf(params.decode, item)[first / Walk::kTilesPerPage] : 0;
  const bool early = Walk::IsSettled(item, first);
  Walk walk;
  if (early) {
    walk.Start(params.decode, cache, item, first, end, page);
  } else if (first < end) {
    constexpr int kTileBytes = S::kKeys * S::kD * sizeof(typename S::Cache);
    PrefetchLines<kTileBytes>(cache.Keys(page, item.kv_head) + Walk::OffsetInPage(first));
    PrefetchLines<kTileBytes>(cache.Values(page, item.kv_head) + Walk::OffsetInPage(first));
  }
  ClusterSync();  // all blocks are there to be sent to
  WaitForPriorLaunches();

  StagedQueries<S, kRowWarps> queries;
  if (!early) walk.Start(params.decode, cache, item, first, end, page);
  queries.Load(params.decode, item);
  queries.Store(shared->queries);
  __syncthreads();
  WarpState<S> state;
  walk.Attend(params.decode, cache, item, shared->queries, &state);
  Send(state, ItemQueries(params.decode, item).count, part, shared);
  ClusterSync();
  StoreSlice(params.decode, item, rank, *shared);
}

}  // namespace hayate::ops::sm90
