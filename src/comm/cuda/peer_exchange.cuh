#pragma once
// What the kernels of exchanges share. Every block does its own range and meets only the same block
// of the other ranks' kernels.
//
// A slot is written again two exchanges later. By then every peer has met this rank in the exchange
// between, so its kernel that read the slot had ended. Epochs live in device memory: a captured
// graph replays them.

#include <cuda_bf16.h>

#include "comm/cuda/peer_memory.h"
#include "tensor/cuda/dependent_launch.cuh"

namespace hayate::comm::cuda {

using hayate::cuda::AllowNextLaunch;
using hayate::cuda::LaunchDependent;
using hayate::cuda::WaitForPriorLaunches;

inline constexpr int kThreads = 512;
inline constexpr int kPollsPerPoisonLook = 4096;

__device__ __forceinline__ void StoreRelease(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t LoadAcquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// What the block's threads wrote before, and launches before the kernel, is seen by the same block
// of every rank after. False on the whole block where the group was poisoned instead. `peers` are
// Peers, or others with memory[], poisoned, rank and size.
template <typename P>
__device__ __forceinline__ bool Meet(const P& peers, int phase, uint32_t epoch) {
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  bool met = true;
  if (peer < peers.size) {
    StoreRelease(&peers.memory[peer]->arrived[phase][peers.rank][blockIdx.x], epoch);
    const uint32_t* arrived = &peers.memory[peers.rank]->arrived[phase][peer][blockIdx.x];
    for (int polls = 1; static_cast<int32_t>(LoadAcquire(arrived) - epoch) < 0; ++polls) {
      if (polls % kPollsPerPoisonLook == 0 &&
          *reinterpret_cast<const volatile uint32_t*>(peers.poisoned) != 0) {
        met = false;
        break;
      }
    }
  }
  return __syncthreads_and(met) != 0;
}

// The last block to end closes the exchange.
template <typename M>
__device__ __forceinline__ void Finish(M* own, uint32_t epoch) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence();
  if (atomicAdd(&own->finished, 1u) + 1 != gridDim.x) return;
  own->finished = 0;
  own->epoch = epoch;
}

struct Range {
  int64_t begin, end;
};
// Units of 16 bytes [0, count) in equal parts.
__device__ __forceinline__ Range PartOf(Range whole, int part, int parts) {
  const int64_t count = whole.end - whole.begin;
  return {whole.begin + count * part / parts, whole.begin + count * (part + 1) / parts};
}

// Peer memory is never served from a cache line that an earlier exchange left.
__device__ __forceinline__ uint4 LoadPeer(const uint4* from) {
  uint4 v;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

__device__ __forceinline__ void AddTo(float (&sum)[4], const uint4& v, float) {
  sum[0] += __uint_as_float(v.x);
  sum[1] += __uint_as_float(v.y);
  sum[2] += __uint_as_float(v.z);
  sum[3] += __uint_as_float(v.w);
}
__device__ __forceinline__ void AddTo(float (&sum)[8], const uint4& v, __nv_bfloat16) {
  const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum[2 * i] += __uint_as_float(words[i] << 16);
    sum[2 * i + 1] += __uint_as_float(words[i] & 0xFFFF0000u);
  }
}
__device__ __forceinline__ uint4 Pack(const float (&sum)[4], float) {
  return make_uint4(__float_as_uint(sum[0]), __float_as_uint(sum[1]), __float_as_uint(sum[2]),
                    __float_as_uint(sum[3]));
}
__device__ __forceinline__ uint4 Pack(const float (&sum)[8], __nv_bfloat16) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(sum[2 * i], sum[2 * i + 1]);
    words[i] = reinterpret_cast<const uint32_t&>(pair);
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ uint4* SlotOf(const Peers& peers, int rank, uint32_t epoch) {
  return reinterpret_cast<uint4*>(peers.memory[rank]->slots[epoch & 1]);
}

template <typename T>
__device__ __forceinline__ uint4 SumOfSlots(const Peers& peers, uint32_t epoch, int64_t unit) {
  float sum[16 / sizeof(T)] = {};
  for (int r = 0; r < peers.size; ++r) AddTo(sum, LoadPeer(SlotOf(peers, r, epoch) + unit), T());
  return Pack(sum, T());
}

}  // namespace hayate::comm::cuda
