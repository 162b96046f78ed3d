#pragma once
// A consumer warpgroup of the prefill kernel: 64 of a tile's 128 queries.

#include "ops/attention/sm90/prefill_parts.cuh"
#include "ops/attention/sm90/prefill_softmax.cuh"
#include "ops/attention/sm90/prefill_work.cuh"
#include "ops/detail/sm90/launch.cuh"
#include "ops/detail/sm90/wgmma.cuh"

namespace hayate::ops::sm90 {

template <int kD, bool kCap, int kTiles, int kParts>
struct PrefillConsumer {
  static constexpr int kHalves = kD / kHalf;
  static constexpr int kStepsPerHalf = kHalf / 16;
  using Scores = float[kBlockN / 2];
  using Weights = uint32_t[kBlockN / 16][4];
  using Output = float[kD / 2];

  const PrefillParams& params;
  PrefillShared<kD>* shared;
  const int group;  // 0 or 1
  const float scale_log2;
  RingState keys, values;
  uint32_t q_parity = 0;

  __device__ PrefillConsumer(const PrefillParams& p, PrefillShared<kD>* s, int g)
      : params(p), shared(s), group(g), scale_log2(p.scale * 1.4426950408889634f) {}

  // The two consumers issue their products in turn. Each round of a consumer waits for the other's
  // arrival at its barrier; the first one is a gift of the second.
  static constexpr int kFirstTurn = 2;  // ids of named barriers
  __device__ __forceinline__ void AwaitTurn() const {
    SyncThreads(kFirstTurn + group, 128 * kConsumers);
  }
  __device__ __forceinline__ void PassTurn() const {
    ArriveThreads(kFirstTurn + 1 - group, 128 * kConsumers);
  }

  // A stage of keys or values, to all who fill it.
  __device__ __forceinline__ void Release(Barrier* barrier) const {
    if constexpr (kTiles == 1) {
      if (threadIdx.x % 32 == 0) Arrive(barrier);
    } else {
      if (threadIdx.x % 32 < kTiles) ArriveRemote(barrier, threadIdx.x % 32);
    }
  }

  // s = Q · Kᵀ of the stage, queued.
  __device__ __forceinline__ void MultiplyKeys(uint32_t stage, Scores& s) const {
    constexpr uint32_t kHalfUnits = kBlockN * kHalf * sizeof(Bf16) / 16;
    static_assert(kBlockM == kBlockN);
    const uint64_t q = SharedOperand(shared->q[0][64 * group]), k = SharedOperand(shared->k[stage]);
    uint32_t q_low = static_cast<uint32_t>(q), k_low = static_cast<uint32_t>(k);
    Forget(q_low);
    Forget(k_low);
#pragma unroll
    for (int i = 0; i < kHalves * kStepsPerHalf; ++i) {
      const uint32_t offset = i / kStepsPerHalf * kHalfUnits + i % kStepsPerHalf * 2;
      Wgmma<kBlockN>::Bf16(s, (q & kHighWord) | (q_low + offset),
                           (k & kHighWord) | (k_low + offset), i > 0);
    }
    WgmmaCommit();
  }
  static constexpr uint64_t kHighWord = uint64_t{0xFFFFFFFF} << 32;
  // Keeps the compiler from holding every sum with `x` in registers of its own across the loop;
  // from there each would have to be moved to a uniform register between two products.
  static __device__ __forceinline__ void Forget(uint32_t& x) { asm volatile("" : "+r"(x)); }

  // o += P · V of the stage, queued.
  __device__ __forceinline__ void MultiplyValues(uint32_t stage, const Weights& p,
                                                 Output& o) const {
    constexpr uint32_t kHalfBytes = kBlockN * kHalf * sizeof(Bf16);
    const uint64_t v = SharedOperand(shared->v[stage][0], 1024, kHalfBytes);
#pragma unroll
    for (int step = 0; step < kBlockN / 16; ++step) {
      constexpr uint64_t kStepUnits = 16 * kHalf * sizeof(Bf16) / 16;
      Wgmma<kD>::template Bf16<BLayout::kMnMajor>(o, p[step], v + step * kStepUnits, 1);
    }
    WgmmaCommit();
  }

  template <bool kMask>
  __device__ __forceinline__ void FinishScores(const RowSight& sight, int32_t block,
                                               Scores& s) const {
    if constexpr (kCap) CapScores(s, params.scale, params.soft_cap);
    if constexpr (kMask) MaskScores(s, sight, block * kBlockN);
  }

  // Positions of this lane's two queries.
  __device__ __forceinline__ RowSight SightOf(const PrefillWork& work) const {
    RowSight sight;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t token = min(QueryOf(half) / params.group_size, work.tile.num_tokens - 1);
      sight.last[half] = work.tile.position + token;
      sight.first[half] = params.window > 0 ? sight.last[half] - params.window + 1 : 0;
    }
    return sight;
  }
  __device__ __forceinline__ int32_t QueryOf(int half) const {
    return 64 * group + threadIdx.x % 128 / 32 * 16 + threadIdx.x % 32 / 4 + 8 * half;
  }
  __device__ __forceinline__ int WarpOfTile() const { return 4 * group + threadIdx.x % 128 / 32; }

  // The last block, whose scores nothing runs beside.
  __device__ __forceinline__ void FirstScores(const RowSight& sight, int32_t block,
                                              RowSoftmax* rows, Weights& p) {
    Scores s;
    Wait(&shared->k_full[keys.stage], keys.parity);
    WgmmaFence();
    MultiplyKeys(keys.stage, s);
    WgmmaWait<0>();
    PinRegisters(s);
    Release(&shared->k_empty[keys.stage]);
    keys.template Advance<kStages>();
    FinishScores<true>(sight, block, s);
    float correction[2];
    AddScores(s, scale_log2, rows, correction);
    PackWeights(s, p);
  }

  // Scores of `block` beside the values of the block after it. No branch may part the softmax from
  // the two waits: the assembler would move it behind the second. A branch must hold the second:
  // the assembler would move it to the first.
  template <bool kMask>
  __device__ __forceinline__ void RunBlock(const RowSight& sight, int32_t block, RowSoftmax* rows,
                                           Weights& p, Output& o) {
    Scores s;
    Wait(&shared->k_full[keys.stage], keys.parity);
    Wait(&shared->v_full[values.stage], values.parity);
    AwaitTurn();
    PinRegisters(o);
    WgmmaFence();
    MultiplyKeys(keys.stage, s);
    MultiplyValues(values.stage, p, o);
    PassTurn();
    WgmmaWait<1>();
    PinRegisters(s);
    Release(&shared->k_empty[keys.stage]);
    keys.template Advance<kStages>();
    FinishScores<kMask>(sight, block, s);
    float correction[2];
    AddScores(s, scale_log2, rows, correction);
    PinRegisters(s);
    // Few blocks hold a new maximum once some have been seen. The wait is for all four warps alike,
    // so it stands in a branch that they take together (see the comment above), not in that of a
    // warp.
    const bool moved = __any_sync(~0u, correction[0] != 1.0f || correction[1] != 1.0f);
    if (params.window > 0) {
      WgmmaWait<0>();
      PinRegisters(o);
      Rescale(o, correction);
    } else {
      WgmmaWait<0>();
      PinRegisters(o);
      if (moved) Rescale(o, correction);
    }
    Release(&shared->v_empty[values.stage]);
    values.template Advance<kStages>();
    PackWeights(s, p);
  }

  __device__ __forceinline__ void RunTile(const PrefillWork& work) {
    RowSoftmax rows;
    Output o;
    if constexpr (kParts == 1) {
      Attend(work, &rows, o);
    } else {
      if (work.first_block < work.end_block) {
        Attend(work, &rows, o);
      } else {
#pragma unroll
        for (int i = 0; i < kD / 2; ++i) o[i] = 0.0f;
      }
      if (!MergeParts<kParts, kD>(WarpOfTile(), scale_log2, &rows, o, shared)) return;
    }
    StoreTile(work, rows, o);
  }

  __device__ __forceinline__ void Attend(const PrefillWork& work, RowSoftmax* rows, Output& o) {
    const RowSight sight = SightOf(work);
    Weights p;
    Wait(&shared->q_full, q_parity);
    q_parity ^= 1;
    int32_t block = work.end_block - 1;
    FirstScores(sight, block, rows, p);
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) o[i] = 0.0f;
    // Blocks that every query sees whole: [all_begin, all_end).
    const int32_t all_end = (work.tile.position + 1) / kBlockN;
    const int32_t all_begin =
        params.window > 0 ? max(0, work.end_key - params.window + kBlockN - 1) / kBlockN : 0;
    for (--block; block >= max(all_end, work.first_block); --block) {
      RunBlock<true>(sight, block, rows, p, o);
    }
    for (; block >= max(all_begin, work.first_block); --block) {
      RunBlock<false>(sight, block, rows, p, o);
    }
    for (; block >= work.first_block; --block) RunBlock<true>(sight, block, rows, p, o);
    if (threadIdx.x % 32 == 0) Arrive(&shared->q_empty);
    Wait(&shared->v_full[values.stage], values.parity);
    PinRegisters(o);
    WgmmaFence();
    MultiplyValues(values.stage, p, o);
    WgmmaWait<0>();
    PinRegisters(o);
    Release(&shared->v_empty[values.stage]);
    values.template Advance<kStages>();
  }

  // Through shared memory, so that a warp writes whole rows. Each warp has its own 16 rows of
  // `out`: those of its queries, or of a tile in parts where it got what others had of them.
  __device__ __forceinline__ void StoreTile(const PrefillWork& work, const RowSoftmax& rows,
                                            Output& o) {
    constexpr int kChunks = kD / 8;  // of 16 bytes a row
    constexpr int kPlaceRows = kBlockM / kMergingWarps;
    // From a query to its row there.
    const int shift = kParts == 1 ? 0 : kPlaceRows * PartPlace() - kWarpQueries * WarpOfTile();
    __syncwarp();  // the last tile's rows have been read
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t query = QueryOf(half);
      float sum = QuadSum(rows.sum[half]), shrink = 1.0f;
      if (params.sinks != nullptr) {
        const float sink =
            params.sinks[work.kv_head * params.group_size + query % params.group_size] *
            1.4426950408889634f;
        const float max = rows.max[half] * scale_log2, highest = fmaxf(max, sink);
        shrink = Exp2(max - highest);
        sum = sum * shrink + Exp2(sink - highest);
      }
      const float factor = sum > 0.0f ? shrink / sum : 0.0f;
#pragma unroll
      for (int i = 0; i < kD / 8; ++i) {
        const int chunk = i ^ (query % 8);
        auto* pair =
            reinterpret_cast<uint32_t*>(&shared->out[query + shift][8 * chunk]) + threadIdx.x % 4;
        *pair = Packed(o[4 * i + 2 * half] * factor, o[4 * i + 2 * half + 1] * factor, Bf16{});
      }
    }
    __syncwarp();
    const int first = 64 * group + threadIdx.x % 128 / 32 * 16;
#pragma unroll
    for (int i = threadIdx.x % 32; i < kWarpQueries * kChunks; i += 32) {
      const int query = first + i / kChunks, chunk = i % kChunks;
      const int32_t token = query / params.group_size, head = query % params.group_size;
      if (token >= work.tile.num_tokens) continue;
      const uint4 data =
          *reinterpret_cast<const uint4*>(&shared->out[query + shift][8 * (chunk ^ (query % 8))]);
      const int64_t to = int64_t{work.tile.token + token} * params.num_q_heads +
                         work.kv_head * params.group_size + head;
      *reinterpret_cast<uint4*>(params.out + to * kD + 8 * chunk) = data;
    }
  }

  __device__ void Run() {
    if (group == 1) PassTurn();
    ForWork<kTiles, kParts>(params, [&](const PrefillWork& work) { RunTile(work); });
  }
};

}  // namespace hayate::ops::sm90
