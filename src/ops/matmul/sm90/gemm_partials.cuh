#pragma once
// Tiles that several blocks share (EvenRuns). A block that starts inside a tile leaves its sums in
// its slot of `partials`; the block that has the tile's first stage adds them to its own in order
// of K, so the result does not depend on timing.

#include "ops/matmul/sm90/gemm_mainloop.cuh"

namespace hayate::ops::sm90 {

inline constexpr int kConsumerBarrier = 1;  // named barrier of the consumers

// The calling thread's part of the slot of `block`, one float4 in every kConsumerThreads.
template <typename C>
__device__ float4* PartialSlot(const GemmParams& params, int block) {
  return reinterpret_cast<float4*>(params.partials +
                                   static_cast<int64_t>(block) * C::kTileN * C::kTileT) +
         threadIdx.x % C::kConsumerThreads;
}

template <typename C>
__device__ void PutPartial(const GemmParams& params, const Slabs<C>& sum) {
  float4* slot = PartialSlot<C>(params, blockIdx.x);
#pragma unroll
  for (int slab = 0; slab < C::kSlabs; ++slab) {
#pragma unroll
    for (int i = 0; i < C::kRegs; i += 4) {
      const float* d = sum[slab] + i;
      __stcg(slot, make_float4(d[0], d[1], d[2], d[3]));
      slot += C::kConsumerThreads;
    }
  }
  SyncThreads(kConsumerBarrier, C::kConsumerThreads);
  if (threadIdx.x % C::kConsumerThreads == 0) {
    asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(params.flags + blockIdx.x) : "memory");
  }
}

// The calling warp waits for the flags of blocks (first, last].
__device__ __forceinline__ void WaitForFlags(const uint32_t* flags, int first, int last) {
  for (int block = first + 1 + static_cast<int>(threadIdx.x) % 32; block <= last; block += 32) {
    uint32_t raised = 0;
    while (raised == 0) {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                   : "=r"(raised)
                   : "l"(flags + block)
                   : "memory");
    }
  }
  __syncwarp();
}

// The last block that has a part of the tile.
__device__ __forceinline__ int LastBlockOf(const GemmParams& params, const GemmWork& work) {
  const int64_t total = static_cast<int64_t>(params.tiles_n) * params.tiles_t * params.k_blocks;
  const int64_t tile = static_cast<int64_t>(work.tile_t) * params.tiles_n + work.tile_n;
  const int64_t tile_end = (tile + 1) * params.k_blocks;
  int block = blockIdx.x;
  while (total * (block + 1) / gridDim.x < tile_end) ++block;
  return block;
}

// Adds what the blocks after this one have of the tile, and lowers their flags. Loads of several
// slots are in flight at a time where a tile is small: its sums wait for nothing else.
template <typename C>
__device__ void GatherPartials(const GemmParams& params, Slabs<C>& sum, const GemmWork& work) {
  constexpr int kLoads = C::kSlabs * C::kRegs / 4;
  constexpr int kAhead = kLoads <= 2 ? 8 : kLoads <= 4 ? 4 : kLoads <= 8 ? 2 : 1;
  const int first = blockIdx.x, last = LastBlockOf(params, work);
  WaitForFlags(params.flags, first, last);
  for (int block = first + 1; block <= last; block += kAhead) {
    float4 add[kAhead][kLoads];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const float4* slot = PartialSlot<C>(params, min(block + i, last));
#pragma unroll
      for (int j = 0; j < kLoads; ++j) add[i][j] = __ldcg(slot + j * C::kConsumerThreads);
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      if (block + i > last) break;
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        float* d = sum[4 * j / C::kRegs] + 4 * j % C::kRegs;
        d[0] += add[i][j].x;
        d[1] += add[i][j].y;
        d[2] += add[i][j].z;
        d[3] += add[i][j].w;
      }
    }
  }
  SyncThreads(kConsumerBarrier, C::kConsumerThreads);
  if (threadIdx.x % C::kConsumerThreads == 0) {
    for (int block = first + 1; block <= last; ++block) params.flags[block] = 0;
  }
}

}  // namespace hayate::ops::sm90
