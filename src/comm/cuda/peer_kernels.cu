// Exchanges through peer memory. Every block does its own range and meets only the same block of
// the other ranks' kernels:
//
//   one shot   copy the range to the own slot, meet, sum the range over all slots
//   two shots  copy, meet, sum this rank's share of the range into the own slot, meet, read all
//              shares: 2 (n − 1) / n of the range over the links instead of n − 1
//
// A slot is written again two exchanges later. By then every peer has met this rank in the exchange
// between, so its kernel that read the slot had ended. Epochs live in device memory: a captured
// graph replays them.

#include <cuda_bf16.h>

#include <algorithm>

#include "base/align.h"
#include "base/check.h"
#include "comm/cuda/peer_memory.h"
#include "tensor/cuda/check.h"

namespace hayate::comm::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kPollsPerPoisonLook = 4096;
// Above it, and with more than two ranks, the second meeting costs less than the bytes it saves.
constexpr int64_t kOneShotBytes = int64_t{256} << 10;

__device__ __forceinline__ void StoreRelease(uint32_t* to, uint32_t value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ __forceinline__ uint32_t LoadAcquire(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

// What the block's threads wrote before is seen by the same block of every rank after.
__device__ __forceinline__ void Meet(const Peers& peers, int phase, uint32_t epoch) {
  __syncthreads();
  const int peer = static_cast<int>(threadIdx.x);
  if (peer < peers.size) {
    StoreRelease(&peers.memory[peer]->arrived[phase][peers.rank][blockIdx.x], epoch);
    const uint32_t* arrived = &peers.memory[peers.rank]->arrived[phase][peer][blockIdx.x];
    for (int polls = 1; static_cast<int32_t>(LoadAcquire(arrived) - epoch) < 0; ++polls) {
      if (polls % kPollsPerPoisonLook == 0 &&
          *reinterpret_cast<const volatile uint32_t*>(peers.poisoned) != 0) {
        break;
      }
    }
  }
  __syncthreads();
}

// The last block to end closes the exchange.
__device__ __forceinline__ void Finish(PeerMemory* own, uint32_t epoch) {
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

template <typename T>
__global__ void __launch_bounds__(kThreads)
    AllReduceKernel(const __grid_constant__ Peers peers, uint4* data, int64_t units,
                    bool two_shots) {
  PeerMemory* own = peers.memory[peers.rank];
  const uint32_t epoch = own->epoch + 1;
  const Range range = PartOf({0, units}, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  uint4* slot = SlotOf(peers, peers.rank, epoch);
  for (int64_t i = range.begin + threadIdx.x; i < range.end; i += kThreads) slot[i] = data[i];
  Meet(peers, 0, epoch);
  if (!two_shots) {
    for (int64_t i = range.begin + threadIdx.x; i < range.end; i += kThreads) {
      data[i] = SumOfSlots<T>(peers, epoch, i);
    }
  } else {
    const Range share = PartOf(range, peers.rank, peers.size);
    for (int64_t i = share.begin + threadIdx.x; i < share.end; i += kThreads) {
      slot[i] = SumOfSlots<T>(peers, epoch, i);
    }
    Meet(peers, 1, epoch);
    for (int step = 0; step < peers.size; ++step) {
      const int peer = (peers.rank + step) % peers.size;  // not everyone at one peer
      const Range theirs = PartOf(range, peer, peers.size);
      const uint4* from = SlotOf(peers, peer, epoch);
      for (int64_t i = theirs.begin + threadIdx.x; i < theirs.end; i += kThreads) {
        data[i] = LoadPeer(from + i);
      }
    }
  }
  Finish(own, epoch);
}

// By bytes: parts may begin anywhere.
__global__ void __launch_bounds__(kThreads)
    AllGatherKernel(const __grid_constant__ Peers peers, const std::byte* part, std::byte* out,
                    int64_t bytes, int64_t stride) {
  PeerMemory* own = peers.memory[peers.rank];
  const uint32_t epoch = own->epoch + 1;
  const Range range = PartOf({0, bytes}, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  std::byte* slot = own->slots[epoch & 1];
  for (int64_t i = range.begin + threadIdx.x; i < range.end; i += kThreads) slot[i] = part[i];
  Meet(peers, 0, epoch);
  for (int r = 0; r < peers.size; ++r) {
    const volatile std::byte* from = peers.memory[r]->slots[epoch & 1];
    for (int64_t i = range.begin + threadIdx.x; i < range.end; i += kThreads) {
      out[r * stride + i] =
          static_cast<std::byte>(reinterpret_cast<const volatile unsigned char*>(from)[i]);
    }
  }
  Finish(own, epoch);
}

// Every rank computes the same, from equal sizes.
unsigned BlocksFor(int64_t units) {
  return static_cast<unsigned>(
      std::clamp<int64_t>(CeilDiv(units, int64_t{kThreads}), 1, kMaxBlocks));
}

}  // namespace

void LoadPeerKernels(Device* device) {
  cudaFuncAttributes attributes;
  CUDA_CHECK(device, cudaFuncGetAttributes(&attributes, AllReduceKernel<float>));
  CUDA_CHECK(device, cudaFuncGetAttributes(&attributes, AllReduceKernel<__nv_bfloat16>));
  CUDA_CHECK(device, cudaFuncGetAttributes(&attributes, AllGatherKernel));
}

void PeerAllReduce(Stream stream, const Peers& peers, DType dtype, void* data, int64_t count) {
  const int64_t bytes = count * Info(dtype).block_bytes;
  CHECK(bytes <= kMaxPeerBytes && bytes % 16 == 0 && reinterpret_cast<uintptr_t>(data) % 16 == 0)
      << bytes;
  CHECK(dtype == DType::kF32 || dtype == DType::kBF16) << Info(dtype).name;
  const auto kernel =
      dtype == DType::kF32 ? AllReduceKernel<float> : AllReduceKernel<__nv_bfloat16>;
  const bool two_shots = peers.size > 2 && bytes > kOneShotBytes;
  kernel<<<BlocksFor(bytes / 16), kThreads, 0, static_cast<cudaStream_t>(stream.handle)>>>(
      peers, static_cast<uint4*>(data), bytes / 16, two_shots);
  CUDA_CHECK_LAUNCH(stream, "peer_all_reduce", count);
}

void PeerAllGather(Stream stream, const Peers& peers, const void* part, std::byte* out,
                   int64_t bytes, int64_t stride) {
  CHECK_LE(bytes, kMaxPeerBytes);
  AllGatherKernel<<<BlocksFor(bytes / 16), kThreads, 0, static_cast<cudaStream_t>(stream.handle)>>>(
      peers, static_cast<const std::byte*>(part), out, bytes, stride);
  CUDA_CHECK_LAUNCH(stream, "peer_all_gather", bytes);
}

}  // namespace hayate::comm::cuda
