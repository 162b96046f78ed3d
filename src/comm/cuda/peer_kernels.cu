// Sums and gathers through peer memory (peer_exchange.cuh):
//
//   one shot   copy the range to the own slot, meet, sum the range over all slots
//   two shots  copy, meet, sum this rank's share of the range into the own slot, meet, read all
//              shares: 2 (n − 1) / n of the range over the links instead of n − 1

#include <algorithm>

#include "base/align.h"
#include "base/check.h"
#include "comm/cuda/peer_exchange.cuh"

namespace hayate::comm::cuda {
namespace {

// Above it, and with more than two ranks, the second meeting costs less than the bytes it saves.
constexpr int64_t kOneShotBytes = int64_t{256} << 10;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    AllReduceKernel(const __grid_constant__ Peers peers, uint4* data, int64_t units,
                    bool two_shots) {
  WaitForPriorLaunches();
  PeerMemory* own = peers.memory[peers.rank];
  const uint32_t epoch = own->epoch + 1;
  const Range range = PartOf({0, units}, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  uint4* slot = SlotOf(peers, peers.rank, epoch);
  for (int64_t i = range.begin + threadIdx.x; i < range.end; i += kThreads) slot[i] = data[i];
  Meet(peers, 0, epoch);
  // Not before the last meeting: where ranks share a GPU, blocks of the next launch could take the
  // place of partners that have not come yet.
  if (!two_shots) {
    AllowNextLaunch();
    for (int64_t i = range.begin + threadIdx.x; i < range.end; i += kThreads) {
      data[i] = SumOfSlots<T>(peers, epoch, i);
    }
  } else {
    const Range share = PartOf(range, peers.rank, peers.size);
    for (int64_t i = share.begin + threadIdx.x; i < share.end; i += kThreads) {
      slot[i] = SumOfSlots<T>(peers, epoch, i);
    }
    Meet(peers, 1, epoch);
    AllowNextLaunch();
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
  WaitForPriorLaunches();
  PeerMemory* own = peers.memory[peers.rank];
  const uint32_t epoch = own->epoch + 1;
  const Range range = PartOf({0, bytes}, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
  std::byte* slot = own->slots[epoch & 1];
  for (int64_t i = range.begin + threadIdx.x; i < range.end; i += kThreads) slot[i] = part[i];
  Meet(peers, 0, epoch);
  AllowNextLaunch();
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
unsigned BlocksFor(const Peers& peers, int64_t units) {
  return static_cast<unsigned>(
      std::clamp<int64_t>(CeilDiv(units, int64_t{kThreads}), 1, peers.max_blocks));
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
  LaunchDependent(stream, kernel, BlocksFor(peers, bytes / 16), kThreads, 0, peers,
                  static_cast<uint4*>(data), bytes / 16, two_shots);
  CUDA_CHECK_LAUNCH(stream, "peer_all_reduce", count);
}

void PeerAllGather(Stream stream, const Peers& peers, const void* part, std::byte* out,
                   int64_t bytes, int64_t stride) {
  CHECK_LE(bytes, kMaxPeerBytes);
  LaunchDependent(stream, AllGatherKernel, BlocksFor(peers, bytes / 16), kThreads, 0, peers,
                  static_cast<const std::byte*>(part), out, bytes, stride);
  CUDA_CHECK_LAUNCH(stream, "peer_all_gather", bytes);
}

}  // namespace hayate::comm::cuda
