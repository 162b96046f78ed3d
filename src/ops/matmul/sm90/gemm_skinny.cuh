#pragma once
// A consumer group's part of a narrow bf16 tile of up to 16 tokens. Instructions of a warpgroup
// multiply 64 rows of tokens, most of which are not there, and a block of K takes four of them one
// after the other: once x is there, a ring full of weights lasts 5 us. Instructions of a warp have
// 16 rows, and the four warps of a group take a step of 16 columns of every block each, as fast as
// the shared memory can be read. Their sums meet at the end, in the first warp, where the tokens
// lie as they do in a warpgroup's fragment.

#include "ops/attention/sm90/mma.cuh"
#include "ops/matmul/sm90/gemm_mainloop.cuh"

namespace hayate::ops::sm90 {

// What a warp multiplies of one stage: its step of every block of its group.
template <typename C>
struct SkinnyStage {
  static constexpr int kPairs = (C::kWidth + 8) / 16;  // of eight features each
  uint32_t x[C::kGroupBlocks][4];
  uint32_t w[C::kGroupBlocks][kPairs][4];
};

// Reads stages. A lane's row of weights lies at the same place of every block, in the chunks of its
// warp's step; where its row of x lies, and how it is swizzled, depends on how many rows there are.
template <typename C>
class SkinnyOperands {
 public:
  __device__ SkinnyOperands(const GemmShared<C>& shared, const GroupOrigin<C>& origin) {
    const int lane = static_cast<int>(threadIdx.x) % 32, matrix = lane / 8, row = lane % 8;
    const int chunk = static_cast<int>(threadIdx.x) % 128 / 32 * 2;
#pragma unroll
    for (int i = 0; i < C::kGroupBlocks; ++i) {
      const int x_row = origin.Block(i) * shared.x_rows + matrix % 2 * 8 + row;
      x_[i] = SharedAddress(shared.x(0, 0)) + x_row * kRowBytes +
              (((chunk + matrix / 2) ^ (x_row % 8)) << 4);
    }
    w_ = SharedAddress(shared.w(0, origin.Block(0))) +
         (origin.n + matrix / 2 * 8 + row) * kRowBytes + (((chunk + matrix % 2) ^ row) << 4);
    // Of an odd number of eights the last one is read twice.
    last_ = C::kWidth % 16 == 0 ? w_ : w_ - matrix / 2 * 8 * kRowBytes;
  }

  __device__ __forceinline__ void Load(SkinnyStage<C>& to, uint32_t stage) const {
#pragma unroll
    for (int i = 0; i < C::kGroupBlocks; ++i) {
      const uint32_t slot = stage * C::kBlocks + i * (C::kSplitK ? kConsumerGroups : 1);
      LoadMatrices(to.x[i], x_[i] + stage * (C::kBlocks * C::kBlockBytesX));
#pragma unroll
      for (int pair = 0; pair < SkinnyStage<C>::kPairs; ++pair) {
        const bool last = pair == SkinnyStage<C>::kPairs - 1;
        LoadMatrices(to.w[i][pair],
                     (last ? last_ : w_) + slot * C::kBlockBytesW + pair * 16 * kRowBytes);
      }
    }
  }

 private:
  uint32_t x_[C::kGroupBlocks], w_, last_;
};

// Each block of a stage has sums of its own, so that its products need not wait for each other.
template <typename C>
using SkinnySums = float[C::kGroupBlocks][C::kRegs];

template <typename C>
__device__ __forceinline__ void MultiplyStage(SkinnySums<C>& sums, const SkinnyStage<C>& stage) {
#pragma unroll
  for (int i = 0; i < C::kGroupBlocks; ++i) {
#pragma unroll
    for (int j = 0; j < C::kWidth / 8; ++j) {
      float(&d)[4] = *reinterpret_cast<float(*)[4]>(&sums[i][4 * j]);
      Mma(d, stage.x[i], stage.w[i][j / 2][j % 2 * 2], stage.w[i][j / 2][j % 2 * 2 + 1],
          __nv_bfloat16{});
    }
  }
}

// The warps of a group add their sums in order into those of the first, through the group's weights
// of the last stage, which all of them have read. Rows 8 … 15 meet only if there are such tokens.
template <typename C>
__device__ __forceinline__ void JoinWarps(float (&sum)[C::kRegs], uint8_t* weights, int group,
                                          bool many) {
  constexpr int kOctets = C::kWidth / 8, kWarps = 4;
  static_assert((kWarps - 1) * kOctets * 32 * sizeof(float2) <= C::kWidth * kRowBytes);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) % 128 / 32;
  const int barrier = 1 + group;
  auto* const place = reinterpret_cast<float2*>(weights) + lane;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (half == 1 && !many) break;
    SyncThreads(barrier, 128);
    if (warp > 0) {
#pragma unroll
      for (int j = 0; j < kOctets; ++j) {
        place[((warp - 1) * kOctets + j) * 32] =
            make_float2(sum[4 * j + 2 * half], sum[4 * j + 2 * half + 1]);
      }
    }
    SyncThreads(barrier, 128);
    if (warp > 0) continue;
#pragma unroll
    for (int j = 0; j < kOctets; ++j) {
#pragma unroll
      for (int other = 0; other < kWarps - 1; ++other) {
        const float2 more = place[(other * kOctets + j) * 32];
        sum[4 * j + 2 * half] += more.x;
        sum[4 * j + 2 * half + 1] += more.y;
      }
    }
  }
}

// In the first warp of the group, the sums of a tile's tokens and the group's features.
template <typename C>
__device__ __forceinline__ void MultiplySkinny(Slabs<C>& slabs, const GemmParams& params,
                                               const GemmShared<C>& shared, RingState& ring,
                                               const GroupOrigin<C>& origin) {
  static_assert(C::kSlabs == 1 && C::kStepsPerBlock == 4);
  const SkinnyOperands<C> operands(shared, origin);
  SkinnySums<C> sums;
#pragma unroll
  for (int i = 0; i < C::kGroupBlocks; ++i) {
#pragma unroll
    for (int j = 0; j < C::kRegs; ++j) sums[i][j] = 0.0f;
  }
  SkinnyStage<C> even, odd;
  Wait(shared.full(ring.stage), ring.parity);
  operands.Load(even, ring.stage);
  // The next stage's operands travel to registers while this one's are multiplied.
  const auto advance = [&](SkinnyStage<C>& next, const SkinnyStage<C>& current) {
    const uint32_t stage = ring.stage;
    ring.Advance<C::kStages>();
    Wait(shared.full(ring.stage), ring.parity);
    operands.Load(next, ring.stage);
    MultiplyStage<C>(sums, current);
    __syncwarp();
    ReleaseStage<C>(shared, stage);
  };
  int32_t more = (params.k_blocks - 1) / C::kBlocks;
  for (; more >= 2; more -= 2) {
    advance(odd, even);
    advance(even, odd);
  }
  if (more == 1) {
    advance(odd, even);
    MultiplyStage<C>(sums, odd);
  } else {
    MultiplyStage<C>(sums, even);
  }
  float(&sum)[C::kRegs] = slabs[0];
#pragma unroll
  for (int j = 0; j < C::kRegs; ++j) {
    sum[j] = sums[0][j];
#pragma unroll
    for (int i = 1; i < C::kGroupBlocks; ++i) sum[j] += sums[i][j];
  }
  JoinWarps<C>(sum, shared.w(ring.stage, origin.Block(0)) + origin.n * kRowBytes, origin.group,
               params.t > 8);
  FenceAsyncProxy();
  __syncwarp();
  ReleaseStage<C>(shared, ring.stage);
  ring.Advance<C::kStages>();
}

}  // namespace hayate::ops::sm90
