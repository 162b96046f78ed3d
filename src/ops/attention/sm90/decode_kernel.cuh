#pragma once
// Decode attention over a planned step: a block of four warps walks its items (attention_plan.h).
// The warps take the item's tiles of keys in turn, each with its own online softmax and no
// synchronisation; at the item's end they are merged through shared memory. A stretch that is not
// the whole leaves a partial result, and the block that ends last for a (row, kv head) merges those
// in order.
//
//   order     a tile belongs to warp (tile − first tile of the item) mod 4; warps and pieces are
//             merged in ascending order. With SplitRule::kByPosition nothing depends on the batch.
//   traffic   2 · D elements a key and kv head, once; partials 4 · (D + 2) bytes a query and piece
//   in flight up to 16 KB a warp: keys of the next tile are asked for as soon as the products with
//             the current ones are issued, and the values likewise; at an item's end those of the
//             next item, so that merging and storing hide behind them. A block's first tile is
//             asked for while earlier launches of the step still run, if none of them writes it

#include "ops/attention/attention_plan.h"
#include "ops/attention/sm90/decode_tile.cuh"
#include "ops/attention/sm90/rows.cuh"
#include "ops/detail/sm90/launch.cuh"

namespace hayate::ops::sm90 {

inline constexpr int kDecodeWarps = 4;
inline constexpr float kLog2E = 1.4426950408889634f;

struct DecodeParams {
  __nv_bfloat16* out;      // [T, Hq, D]
  const __nv_bfloat16* q;  // [T, Hq, D]
  int64_t q_row_stride;    // elements
  const int32_t* page_table;
  int32_t page_table_stride;
  AttentionPlan plan;
  float scale, soft_cap;
  int32_t num_q_heads, group_size, group_offset, window;
  const float* sinks;
};

// The queries of an item: number n is token n / num_heads, head first_head + n % num_heads.
struct ItemQueries {
  int32_t first_head, num_heads, count;

  __device__ ItemQueries(const DecodeParams& params, const DecodeItem& item) {
    const int32_t begin = item.kv_head * params.group_size - params.group_offset;
    first_head = max(0, begin);
    num_heads = min(params.num_q_heads, begin + params.group_size) - first_head;
    count = item.num_tokens * num_heads;
  }
  __device__ int32_t Token(int32_t n) const { return n / num_heads; }
  __device__ int32_t Head(int32_t n) const { return first_head + n % num_heads; }
};

template <typename S>
struct DecodeShared {
  static constexpr int kQueries = 8 * S::kTiles;
  DecodeItem items[3];  // item i in place i mod 3: the current one and two ahead
  uint2 queries[S::kTiles * S::kSteps * 32];  // operands, see KeyTile::Scores
  float max[kDecodeWarps][kQueries];          // of scores times log₂ e
  float sum[kDecodeWarps][kQueries];
  bool last;
  // Rows of 4 more than D: the lanes of a quad then write to different banks.
  alignas(16) float o[kDecodeWarps][kQueries][S::kD + 4];
};

// This thread's part of an item's queries as operands; missing ones are zero.
template <typename S, int kWarps>
struct StagedQueries {
  static constexpr int kThreads = 32 * kWarps, kOperands = S::kTiles * S::kSteps * 32;
  static constexpr int kPerThread = CeilDiv(kOperands, kThreads);
  uint2 x[kPerThread];

  __device__ __forceinline__ void Load(const DecodeParams& params, const DecodeItem& item) {
    const ItemQueries queries(params, item);
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int index = threadIdx.x + i * kThreads, lane = index % 32;
      const int step = index / 32 % S::kSteps, n = index / 32 / S::kSteps * 8 + lane / 4;
      const int chunk = 4 * (step / S::kStepsPerLoad) + lane % 4;
      x[i] = make_uint2(0, 0);
      if (n >= queries.count || chunk >= S::kChunks) continue;
      const int feature = chunk * S::kChunk + 4 * (step % S::kStepsPerLoad);
      x[i] = *reinterpret_cast<const uint2*>(params.q +
                                             (item.token + queries.Token(n)) * params.q_row_stride +
                                             int64_t{queries.Head(n)} * S::kD + feature);
    }
  }

  __device__ __forceinline__ void Store(uint2* operands) const {
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      const int index = threadIdx.x + i * kThreads;
      if (kOperands % kThreads != 0 && index >= kOperands) continue;
      uint2 operand = x[i];
      if constexpr (std::is_same_v<typename S::Operand, __half>) {
        const auto* pair = reinterpret_cast<const __nv_bfloat16*>(&operand);
        operand = make_uint2(Packed(ToFloat(pair[0]), ToFloat(pair[1]), __half{}),
                             Packed(ToFloat(pair[2]), ToFloat(pair[3]), __half{}));
      }
      operands[index] = operand;
    }
  }
};

// A warp's state of the queries 8n + 2j + e, e in {0, 1}.
template <typename S>
struct WarpState {
  float max[S::kTiles][2], sum[S::kTiles][2];
  float o[S::kRowTiles][S::kTiles][4];

  __device__ __forceinline__ WarpState() {
#pragma unroll
    for (int n = 0; n < S::kTiles; ++n) {
      max[n][0] = max[n][1] = -INFINITY;
      sum[n][0] = sum[n][1] = 0.0f;
#pragma unroll
      for (int m = 0; m < S::kRowTiles; ++m) {
#pragma unroll
        for (int e = 0; e < 4; ++e) o[m][n][e] = 0.0f;
      }
    }
  }
  // `sum` is of the lane's own keys; this, of all the warp's keys, in every lane.
  __device__ __forceinline__ float WholeSum(int n, int e) const {
    float whole = sum[n][e];
#pragma unroll
    for (int lane = 4; lane < 32; lane *= 2) whole += __shfl_xor_sync(~0u, whole, lane);
    return whole;
  }
};

template <typename S>
using TileScores = float[S::kSubtiles][S::kTiles][4];

// The unseen scores become −∞. Few tiles need this: the last ones, and the first ones of a window.
template <typename S>
__device__ __forceinline__ void Mask(const DecodeParams& params, const DecodeItem& item,
                                     int32_t first_key, TileScores<S>& s) {
  const ItemQueries queries(params, item);
  const int32_t lane_key = first_key + threadIdx.x % 32 / 4;
#pragma unroll
  for (int n = 0; n < S::kTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int query = 8 * n + 2 * static_cast<int>(threadIdx.x % 4) + e;
      const int32_t last = item.position + queries.Token(min(query, queries.count - 1));
      const int32_t first = params.window > 0 ? last - params.window + 1 : 0;
#pragma unroll
      for (int u = 0; u < S::kSubtiles; ++u) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int32_t key = lane_key + 16 * u + 8 * half;
          if (key > last || key < first) s[u][n][e + 2 * half] = -INFINITY;
        }
      }
    }
  }
}

// c · tanh(x · scale / c) · log₂ e, with tanh(y) = 1 − 2 / (e^2y + 1).
__device__ __forceinline__ float Capped(float x, float scale, float cap) {
  const float e = Exp2(x * (2.0f * kLog2E * scale / cap));
  return cap * kLog2E * (1.0f - __fdividef(2.0f, e + 1.0f));
}

// Scores to base-2 logits.
template <typename S>
__device__ __forceinline__ void Scale(const DecodeParams& params, TileScores<S>& s) {
  const float scale = params.scale * kLog2E;
#pragma unroll
  for (int u = 0; u < S::kSubtiles; ++u) {
#pragma unroll
    for (int n = 0; n < S::kTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& x = s[u][n][e];
        x = params.soft_cap > 0.0f ? Capped(x, params.scale, params.soft_cap) : x * scale;
      }
    }
  }
}

// Logits to weights (operands of ValueTile::Add); rescales what came before.
template <typename S>
__device__ __forceinline__ void Softmax(TileScores<S>& s, WarpState<S>* state,
                                        uint32_t (&p)[S::kSubtiles][S::kTiles][2]) {
#pragma unroll
  for (int n = 0; n < S::kTiles; ++n) {
    float correction[2];
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      float highest = state->max[n][e];
#pragma unroll
      for (int u = 0; u < S::kSubtiles; ++u) {
        highest = fmaxf(highest, fmaxf(s[u][n][e], s[u][n][e + 2]));
      }
#pragma unroll
      for (int lane = 4; lane < 32; lane *= 2) {
        highest = fmaxf(highest, __shfl_xor_sync(~0u, highest, lane));
      }
      // Before the first visible key the maximum is −∞, and −∞ − −∞ is no number.
      const float base = highest == -INFINITY ? 0.0f : highest;
      correction[e] = Exp2(state->max[n][e] - base);
      state->max[n][e] = highest;
      float sum = 0.0f;
#pragma unroll
      for (int u = 0; u < S::kSubtiles; ++u) {
        s[u][n][e] = Exp2(s[u][n][e] - base);
        s[u][n][e + 2] = Exp2(s[u][n][e + 2] - base);
        sum += s[u][n][e] + s[u][n][e + 2];
      }
      state->sum[n][e] = state->sum[n][e] * correction[e] + sum;
    }
#pragma unroll
    for (int u = 0; u < S::kSubtiles; ++u) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        p[u][n][half] =
            Transposed(Packed(s[u][n][2 * half], s[u][n][2 * half + 1], typename S::Operand{}));
      }
    }
#pragma unroll
    for (int m = 0; m < S::kRowTiles; ++m) {
#pragma unroll
      for (int e = 0; e < 4; ++e) state->o[m][n][e] *= correction[e % 2];
    }
  }
}

// A warp's walk over its share of an item's tiles, one of kStride. Between Start and Attend the
// first tile's loads are under way.
template <typename S, int kStride>
struct TileWalk {
  static constexpr int kTilesPerPage = kPlanPage / S::kKeys;
  KeyTile<S> keys;
  ValueTile<S> values;
  int32_t tile, end, next_page;  // end: one behind the item's last tile

  static __device__ __forceinline__ const int32_t* PagesOf(const DecodeParams& params,
                                                           const DecodeItem& item) {
    return params.page_table + int64_t{item.table_row} * params.page_table_stride;
  }
  // Whether no launch of this step writes tile `first`: its keys are all before the row's tokens.
  static __device__ __forceinline__ bool IsSettled(const DecodeItem& item, int32_t first) {
    const int32_t first_written = item.position - item.tokens_before;
    return item.tokens_before < kManyTokensBefore && (first + 1) * S::kKeys <= first_written;
  }

  // Tiles `first`, `first` + kStride, … before `end_tile`; the first one lies in `first_page`.
  __device__ __forceinline__ void Start(const DecodeParams& params,
                                        const PagedCache<typename S::Cache>& cache,
                                        const DecodeItem& item, int32_t first, int32_t end_tile,
                                        int32_t first_page) {
    tile = first;
    end = end_tile;
    if (tile >= end) return;
    keys.Load(cache.Keys(first_page, item.kv_head) + OffsetInPage(tile));
    values.Load(cache.Values(first_page, item.kv_head) + OffsetInPage(tile));
    next_page = PagesOf(params, item)[min(tile + kStride, end - 1) / kTilesPerPage];
  }

  // Elements from a page's first key of the head to the tile's.
  static __device__ __forceinline__ int32_t OffsetInPage(int32_t t) {
    return t % kTilesPerPage * S::kKeys * S::kD;
  }

  __device__ __forceinline__ void Attend(const DecodeParams& params,
                                         const PagedCache<typename S::Cache>& cache,
                                         const DecodeItem& item, const uint2* operands,
                                         WarpState<S>* state) {
    if (tile >= end) return;
    const int32_t last_key = item.position + item.num_tokens - 1;
    // Keys that every query of the item sees.
    const int32_t all_begin = params.window > 0 ? last_key - params.window + 1 : 0;
    const int32_t all_end = item.position + 1;
    while (true) {
      const int32_t next = tile + kStride;
      TileScores<S> s;
      keys.Scores(operands, s);
      if (next < end) keys.Load(cache.Keys(next_page, item.kv_head) + OffsetInPage(next));
      Scale<S>(params, s);
      if (tile * S::kKeys < all_begin || (tile + 1) * S::kKeys > all_end) {
        Mask<S>(params, item, tile * S::kKeys, s);
        if ((tile + 1) * S::kKeys > last_key) values.ZeroFrom(last_key + 1 - tile * S::kKeys);
      }
      uint32_t p[S::kSubtiles][S::kTiles][2];
      Softmax<S>(s, state, p);
      values.Add(p, state->o);
      if (next >= end) return;
      values.Load(cache.Values(next_page, item.kv_head) + OffsetInPage(next));
      next_page = PagesOf(params, item)[min(next + kStride, end - 1) / kTilesPerPage];
      tile = next;
    }
  }
};

// A warp's tiles of an item of the plan.
template <typename S>
struct ItemWalk : TileWalk<S, kDecodeWarps> {
  using Base = TileWalk<S, kDecodeWarps>;

  static __device__ __forceinline__ int32_t FirstTile(const DecodeItem& item) {
    return item.page_begin * Base::kTilesPerPage + threadIdx.x / 32;
  }
  static __device__ __forceinline__ int32_t EndTile(const DecodeItem& item) {
    const int32_t last_key = item.position + item.num_tokens - 1;
    return min(item.page_end * Base::kTilesPerPage, last_key / S::kKeys + 1);
  }
  static __device__ __forceinline__ bool FirstTileIsSettled(const DecodeItem& item) {
    return Base::IsSettled(item, FirstTile(item));
  }
  // The page of the warp's first tile; 0 where it has none.
  static __device__ __forceinline__ int32_t FirstPage(const DecodeParams& params,
                                                      const DecodeItem& item) {
    const int32_t first = FirstTile(item);
    return first < EndTile(item) ? Base::PagesOf(params, item)[first / Base::kTilesPerPage] : 0;
  }

  __device__ __forceinline__ void Start(const DecodeParams& params,
                                        const PagedCache<typename S::Cache>& cache,
                                        const DecodeItem& item, int32_t first_page) {
    Base::Start(params, cache, item, FirstTile(item), EndTile(item), first_page);
  }
};

// A warp's state into shared memory.
template <typename S>
__device__ __forceinline__ void Leave(const WarpState<S>& state, DecodeShared<S>* shared) {
  const int warp = threadIdx.x / 32, r = threadIdx.x % 32 / 4, j = threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < S::kTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int query = 8 * n + 2 * j + e;
      const float sum = state.WholeSum(n, e);
      if (r == 0) {
        shared->max[warp][query] = state.max[n][e];
        shared->sum[warp][query] = sum;
      }
#pragma unroll
      for (int m = 0; m < S::kRowTiles; ++m) {
        const int feature = OutputFeature<S>(m);
        if (feature >= S::kD) continue;
        *reinterpret_cast<float2*>(&shared->o[warp][query][feature]) =
            make_float2(state.o[m][n][e], state.o[m][n][e + 2]);
      }
    }
  }
}

// A softmax over part of the keys, four features of it.
struct Part {
  float max = -INFINITY, sum = 0.0f;
  float4 o = {0.0f, 0.0f, 0.0f, 0.0f};

  __device__ __forceinline__ void Add(float other_max, float other_sum, const float4& other) {
    if (other_max == -INFINITY) return;  // no key was visible
    const float highest = fmaxf(max, other_max);
    const float mine = Exp2(max - highest), theirs = Exp2(other_max - highest);
    max = highest;
    sum = sum * mine + other_sum * theirs;
    o.x = o.x * mine + other.x * theirs;
    o.y = o.y * mine + other.y * theirs;
    o.z = o.z * mine + other.z * theirs;
    o.w = o.w * mine + other.w * theirs;
  }
};

__device__ __forceinline__ void StoreOutput(const DecodeParams& params, const DecodeItem& item,
                                            const ItemQueries& queries, int32_t head_dim, int n,
                                            int feature, Part part) {
  const int32_t head = queries.Head(n);
  if (params.sinks != nullptr) {
    const float sink = params.sinks[head] * kLog2E;
    part.Add(sink, 1.0f, {0.0f, 0.0f, 0.0f, 0.0f});
  }
  const float inverse = part.sum > 0.0f ? 1.0f / part.sum : 0.0f;
  const uint2 packed = make_uint2(Packed(part.o.x * inverse, part.o.y * inverse, __nv_bfloat16{}),
                                  Packed(part.o.z * inverse, part.o.w * inverse, __nv_bfloat16{}));
  const int64_t row = int64_t{item.token + queries.Token(n)} * params.num_q_heads + head;
  *reinterpret_cast<uint2*>(params.out + row * head_dim + feature) = packed;
}

// A slot of partial results: sums [kMaxDecodeQueries, D], then max and sum of each query.
template <typename S>
struct Slot {
  float* base;

  __device__ Slot(const DecodeParams& params, int32_t index)
      : base(params.plan.partials + int64_t{index} * kMaxDecodeQueries * (S::kD + 2)) {}
  __device__ float4* Output(int n, int feature) const {
    return reinterpret_cast<float4*>(base + n * S::kD + feature);
  }
  __device__ float2* MaxAndSum(int n) const {
    return reinterpret_cast<float2*>(base + kMaxDecodeQueries * S::kD) + n;
  }
};

// Merges all pieces of the item's (row, kv head).
template <typename S>
__device__ void MergePieces(const DecodeParams& params, const DecodeItem& item,
                            const ItemQueries& queries) {
  constexpr int kBatch = 12;  // loads in flight
  const int32_t first = item.partial - item.piece;
  for (int i = threadIdx.x; i < queries.count * (S::kD / 4); i += 32 * kDecodeWarps) {
    const int n = i / (S::kD / 4), feature = i % (S::kD / 4) * 4;
    Part part;
    for (int32_t piece = 0; piece < item.num_pieces; piece += kBatch) {
      float2 max_sum[kBatch];
      float4 o[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const Slot<S> slot(params, first + min(piece + b, item.num_pieces - 1));
        max_sum[b] = __ldcg(slot.MaxAndSum(n));
        o[b] = __ldcg(slot.Output(n, feature));
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        if (piece + b < item.num_pieces) part.Add(max_sum[b].x, max_sum[b].y, o[b]);
      }
    }
    StoreOutput(params, item, queries, S::kD, n, feature, part);
  }
}

// What the counter was. Hands over what the block's threads wrote before the barrier ahead of it,
// and takes what others handed over.
__device__ __forceinline__ int32_t CountUp(int32_t* counter) {
  int32_t before;
  asm volatile("atom.add.acq_rel.gpu.global.s32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  return before;
}

// True in all threads of the block that is the last to leave its piece.
template <typename S>
__device__ bool IsLastPiece(const DecodeParams& params, const DecodeItem& item,
                            DecodeShared<S>* shared) {
  __syncthreads();
  if (threadIdx.x == 0) {
    int32_t* counter = params.plan.counters + item.partial - item.piece;
    shared->last = CountUp(counter) == item.num_pieces - 1;
    if (shared->last) *counter = 0;
  }
  __syncthreads();
  return shared->last;
}

// The warps' states merged and stored: the output, or a partial result, or, if it is the last piece
// of its (row, kv head) to end, the merged output of all pieces.
template <typename S>
__device__ __forceinline__ void FinishItem(const DecodeParams& params, const DecodeItem& item,
                                           DecodeShared<S>* shared) {
  const ItemQueries queries(params, item);
  for (int i = threadIdx.x; i < queries.count * (S::kD / 4); i += 32 * kDecodeWarps) {
    const int n = i / (S::kD / 4), feature = i % (S::kD / 4) * 4;
    Part part;
#pragma unroll
    for (int warp = 0; warp < kDecodeWarps; ++warp) {
      part.Add(shared->max[warp][n], shared->sum[warp][n],
               *reinterpret_cast<const float4*>(&shared->o[warp][n][feature]));
    }
    if (item.partial < 0) {
      StoreOutput(params, item, queries, S::kD, n, feature, part);
      continue;
    }
    const Slot<S> slot(params, item.partial);
    *slot.Output(n, feature) = part.o;
    if (feature == 0) *slot.MaxAndSum(n) = make_float2(part.max, part.sum);
  }
  if (item.partial >= 0 && IsLastPiece<S>(params, item, shared)) {
    MergePieces<S>(params, item, queries);
  }
}

// Half of an item for each of the first two threads.
__device__ __forceinline__ uint4 LoadItemHalf(const DecodeParams& params, int32_t index) {
  const auto* halves = reinterpret_cast<const uint4*>(params.plan.decode_items + index);
  return threadIdx.x < 2 ? halves[threadIdx.x] : make_uint4(0, 0, 0, 0);
}
__device__ __forceinline__ void StoreItemHalf(const uint4& half, DecodeItem* item) {
  if (threadIdx.x < 2) reinterpret_cast<uint4*>(item)[threadIdx.x] = half;
}

template <typename S>
__global__ __launch_bounds__(32 * kDecodeWarps,
                             1) void DecodeKernel(const DecodeParams params,
                                                  const PagedCache<typename S::Cache> cache) {
  extern __shared__ __align__(16) std::byte shared_bytes[];
  auto* shared = reinterpret_cast<DecodeShared<S>*>(shared_bytes);
  // The plan came with a copy, and the page tables changed before the step's first dependent
  // launch: both may be read while earlier launches still run.
  const int32_t begin = params.plan.decode_begin[blockIdx.x];
  const int32_t count = params.plan.decode_begin[blockIdx.x + 1] - begin;
  // Room for the blocks of the next launch, which fetch weights. One block stays: the next launch
  // takes the end of this one for the end of all before it.
  if (count == 0 && blockIdx.x > 0) return;
  for (int i = 0; i < min(2, count); ++i) {
    StoreItemHalf(LoadItemHalf(params, begin + i), &shared->items[i]);
  }
  __syncthreads();
  AllowNextLaunch();
  ItemWalk<S> walk;
  const int32_t first_page = count > 0 ? ItemWalk<S>::FirstPage(params, shared->items[0]) : 0;
  const bool early = count > 0 && ItemWalk<S>::FirstTileIsSettled(shared->items[0]);
  if (early) walk.Start(params, cache, shared->items[0], first_page);
  // Prefill beside lets this launch begin once all before prefill have ended.
  if (!params.plan.beside || count == 0) WaitForPriorLaunches();
  if (count == 0) return;

  StagedQueries<S, kDecodeWarps> queries;
  if (!early) walk.Start(params, cache, shared->items[0], first_page);
  queries.Load(params, shared->items[0]);
  queries.Store(shared->queries);
  __syncthreads();
  for (int32_t i = 0; i < count; ++i) {
    const DecodeItem& item = shared->items[i % 3];
    const DecodeItem& next = shared->items[(i + 1) % 3];
    const bool more = i + 1 < count;
    const int32_t next_page = more ? ItemWalk<S>::FirstPage(params, next) : 0;
    uint4 half;
    {
      WarpState<S> state;
      walk.Attend(params, cache, item, shared->queries, &state);
      if (more) {
        walk.Start(params, cache, next, next_page);
        queries.Load(params, next);
      }
      if (i + 2 < count) half = LoadItemHalf(params, begin + i + 2);
      Leave<S>(state, shared);
    }
    __syncthreads();
    FinishItem<S>(params, item, shared);
    if (!more) break;
    queries.Store(shared->queries);
    if (i + 2 < count) StoreItemHalf(half, &shared->items[(i + 2) % 3]);
    __syncthreads();
  }
  // The end of this launch is that of prefill too.
  if (params.plan.beside && blockIdx.x == 0) WaitForPriorLaunches();
}

}  // namespace hayate::ops::sm90
