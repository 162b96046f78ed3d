#pragma once
// The producer warpgroup of the prefill kernel. Its first warp drives the copy engine; with an e4m3
// cache the other three turn what arrives into bf16 operands.

#include "ops/attention/sm90/mma.cuh"
#include "ops/attention/sm90/prefill_work.cuh"
#include "ops/detail/sm90/tma.cuh"

namespace hayate::ops::sm90 {

template <typename TCache, int kD, int kTiles, int kParts>
struct PrefillProducer {
  using Shared = PrefillSharedOf<TCache, kD>;
  static constexpr bool kConverts = sizeof(TCache) == 1;
  static constexpr int kConverters = 96;  // threads
  static_assert(kTiles == 1 || (kTiles == kBlockPages && !kConverts));

  const PrefillParams& params;
  const CUtensorMap& q_map;
  const CUtensorMap& kv_map;
  Shared* shared;
  RingState ring{0, 1};  // of K and V alike; an empty stage needs no wait in the first round
  RingState raw{0, kConverts ? 1u : 0u};
  uint32_t q_parity = 1;

  static __device__ __forceinline__ bool Leads() { return threadIdx.x % 32 == 0; }

  // A page that some query sees, for every page of a block: the others are masked.
  __device__ int32_t PageOf(const PrefillWork& work, int32_t page) const {
    const int32_t seen = max(work.first_key / kPlanPage, min(page, (work.end_key - 1) / kPlanPage));
    return params.page_table[int64_t{work.tile.table_row} * params.page_table_stride + seen];
  }

  __device__ void LoadQueries(const PrefillWork& work) {
    Wait(&shared->q_empty, q_parity);
    q_parity ^= 1;
    const int32_t rows = kBlockM / params.group_size * params.group_size;
    ArriveExpectBytes(&shared->q_full, rows * kD * sizeof(Bf16));
#pragma unroll
    for (int half = 0; half < Shared::kHalves; ++half) {
      Load3D(shared->q[half], &q_map, &shared->q_full, half * kHalf,
             work.kv_head * params.group_size, work.tile.token);
    }
  }

  // One head of a block of keys or values, as operands. Of a pair each block brings one page to
  // both.
  __device__ void LoadBlock(Bf16 (*to)[kBlockN][kHalf], Barrier* full, const PrefillWork& work,
                            int32_t block, int32_t head) {
    ArriveExpectBytes(full, kBlockN * kD * sizeof(Bf16));
#pragma unroll
    for (int i = 0; i < kBlockPages / kTiles; ++i) {
      const int page = kTiles > 1 ? static_cast<int>(ClusterRank()) : i;
      const int32_t id = PageOf(work, block * kBlockPages + page);
#pragma unroll
      for (int half = 0; half < Shared::kHalves; ++half) {
        Bf16* place = to[half][page * kPlanPage];
        if constexpr (kTiles == 1) {
          Load4D(place, &kv_map, full, half * kHalf, 0, head, id, CacheHint::kEvictLast);
        } else {
          Load4DMulticast(place, &kv_map, full, half * kHalf, 0, head, id, (1 << kTiles) - 1,
                          CacheHint::kEvictLast);
        }
      }
    }
  }

  // Of the tile's last block, the rows that hold written keys: [kept_begin, kept_end). The others
  // may be NaN, which a weight of 0 would not hide. Rows before come from a page that stands in for
  // one the window dropped.
  static __device__ __forceinline__ int32_t KeptBegin(const PrefillWork& work) {
    const int32_t block = work.end_block - 1;
    return max(0, work.first_key / kPlanPage * kPlanPage - block * kBlockN);
  }
  static __device__ __forceinline__ int32_t KeptEnd(const PrefillWork& work) {
    return work.written_end - (work.end_block - 1) * kBlockN;
  }

  // The rest of the last block's values becomes zeros. All lanes of the warp.
  __device__ void ZeroValues(const PrefillWork& work, uint32_t stage) {
    Wait(&shared->raw_full[0], raw.parity);
    raw.parity ^= 1;
    constexpr int kChunksPerRow = kHalf * sizeof(Bf16) / 16;
    const int32_t begin = KeptBegin(work), end = KeptEnd(work);
    for (int half = 0; half < Shared::kHalves; ++half) {
      auto* chunks = reinterpret_cast<uint4*>(shared->v[stage][half]);
      for (int i = threadIdx.x % 32; i < kBlockN * kChunksPerRow; i += 32) {
        const int row = i / kChunksPerRow;
        if (row < begin || row >= end) chunks[i] = make_uint4(0, 0, 0, 0);
      }
    }
    FenceAsyncProxy();
    __syncwarp();
  }

  __device__ void LoadTile(const PrefillWork& work) {
    for (int32_t block = work.end_block - 1; block >= work.first_block; --block) {
      const bool last = block == work.end_block - 1;
      const bool ragged = last && KeptEnd(work) < kBlockN;
      if (Leads()) {
        Wait(&shared->k_empty[ring.stage], ring.parity);
        LoadBlock(shared->k[ring.stage], &shared->k_full[ring.stage], work, block, work.kv_head);
        if (last) LoadQueries(work);
        Wait(&shared->v_empty[ring.stage], ring.parity);
        LoadBlock(shared->v[ring.stage],
                  ragged ? &shared->raw_full[0] : &shared->v_full[ring.stage], work, block,
                  params.num_kv_heads + work.kv_head);
      }
      __syncwarp();
      if (ragged) {
        ZeroValues(work, ring.stage);
        if (Leads()) Arrive(&shared->v_full[ring.stage]);
      }
      ring.template Advance<kStages>();
    }
  }

  // The copies of an e4m3 cache; one lane.
  __device__ void LoadRawBlock(const PrefillWork& work, int32_t block, int32_t head) {
    Wait(&shared->raw_empty[raw.stage], raw.parity);
    Barrier* full = &shared->raw_full[raw.stage];
    ArriveExpectBytes(full, kBlockN * kD);
    for (int page = 0; page < kBlockPages; ++page) {
      Load4D(shared->raw[raw.stage][page * kPlanPage], &kv_map, full, 0, 0, head,
             PageOf(work, block * kBlockPages + page), CacheHint::kEvictLast);
    }
    raw.template Advance<kStages>();
  }
  __device__ void LoadRawTile(const PrefillWork& work) {
    for (int32_t block = work.end_block - 1; block >= work.first_block; --block) {
      LoadRawBlock(work, block, work.kv_head);
      if (block == work.end_block - 1) LoadQueries(work);
      LoadRawBlock(work, block, params.num_kv_heads + work.kv_head);
    }
  }

  // Eight e4m3 as a chunk of bf16, which holds them exactly.
  static __device__ __forceinline__ uint4 Widened(uint2 x) {
    uint32_t out[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t pair = HalvesOfE4M3((i < 2 ? x.x : x.y) >> (i % 2 * 16));
      const float2 wide = __half22float2(reinterpret_cast<const __half2&>(pair));
      out[i] = Packed(wide.x, wide.y, Bf16{});
    }
    return make_uint4(out[0], out[1], out[2], out[3]);
  }

  // The raw block, its rows outside of [begin, end) as zeros, into an operand stage.
  __device__ void Convert(Bf16 (*to)[kBlockN][kHalf], Barrier* full, int32_t begin, int32_t end) {
    Wait(&shared->raw_full[raw.stage], raw.parity);
    constexpr int kChunks = kD / 16;  // of 16 e4m3 in a row
    constexpr int kBatch = 4;         // loads in flight
    const auto* from = reinterpret_cast<const uint4*>(shared->raw[raw.stage]);
    for (int first = threadIdx.x - 32; first < kBlockN * kChunks; first += kBatch * kConverters) {
      uint4 x[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        x[b] = from[min(first + b * kConverters, kBlockN * kChunks - 1)];
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) {
        const int i = first + b * kConverters;
        if (i >= kBlockN * kChunks) break;
        const int row = i / kChunks, chunk = 2 * (i % kChunks);  // of 8 bf16
        if (row < begin || row >= end) x[b] = make_uint4(0, 0, 0, 0);
        auto* half = reinterpret_cast<uint4*>(to[chunk / 8][row]);
        half[(chunk % 8) ^ (row % 8)] = Widened(make_uint2(x[b].x, x[b].y));
        half[(chunk % 8 + 1) ^ (row % 8)] = Widened(make_uint2(x[b].z, x[b].w));
      }
    }
    FenceAsyncProxy();
    __syncwarp();
    if (Leads()) {
      Arrive(full);
      Arrive(&shared->raw_empty[raw.stage]);
    }
    raw.template Advance<kStages>();
  }
  __device__ void ConvertTile(const PrefillWork& work) {
    for (int32_t block = work.end_block - 1; block >= work.first_block; --block) {
      const uint32_t stage = ring.stage;
      const bool last = block == work.end_block - 1;
      Wait(&shared->k_empty[stage], ring.parity);
      Convert(shared->k[stage], &shared->k_full[stage], 0, kBlockN);
      Wait(&shared->v_empty[stage], ring.parity);
      Convert(shared->v[stage], &shared->v_full[stage], last ? KeptBegin(work) : 0,
              last ? KeptEnd(work) : kBlockN);
      ring.template Advance<kStages>();
    }
  }

  __device__ void Run() {
    const int warp = threadIdx.x / 32;
    if constexpr (kConverts) {
      if (warp > 0) {
        raw.parity = 0;
        ForWork<kTiles, kParts>(params, [&](const PrefillWork& work) { ConvertTile(work); });
      } else if (Leads()) {
        ForWork<kTiles, kParts>(params, [&](const PrefillWork& work) { LoadRawTile(work); });
      }
    } else if (warp == 0) {
      ForWork<kTiles, kParts>(params, [&](const PrefillWork& work) { LoadTile(work); });
    }
  }
};

}  // namespace hayate::ops::sm90
