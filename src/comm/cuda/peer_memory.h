#pragma once
// What a rank shows to its peers, and the kernels over it. Plain data, no CUDA headers.

#include <cstddef>
#include <cstdint>

#include "comm/group.h"
#include "comm/peer_group.h"
#include "tensor/device.h"
#include "tensor/dtype.h"

namespace hayate::comm::cuda {

inline constexpr int kMaxBlocks = 64;  // of a launch: enough to fill the links, few to synchronise

// Lies in the device memory of its rank; peers write `arrived` and read the slots.
struct PeerMemory {
  // [phase][peer][block]: the exchange that this block of the peer's kernel has reached.
  uint32_t arrived[2][kMaxPeerRanks][kMaxBlocks];
  uint32_t epoch;     // exchanges done; written by this rank's kernels alone
  uint32_t finished;  // blocks of the running kernel that are done
  alignas(256) std::byte slots[2][kMaxPeerBytes];  // exchange e uses slot e mod 2
};

struct Peers {
  PeerMemory* memory[kMaxPeerRanks] = {};
  const uint32_t* poisoned = nullptr;  // host memory that every device reads
  int rank = 0;
  int size = 0;
  int max_blocks = kMaxBlocks;  // of a launch, the same on all ranks: MaxBlocksOf
};

// Loads the kernels onto the current device. A kernel that waits for its peers may hold up the
// loading of theirs, so it comes before the first launch.
void LoadPeerKernels(Device* device);
void LoadSumNormKernels(Device* device);

// data = Σ over ranks of data, f32 or bf16, summed in f32 in rank order. At most kMaxPeerBytes.
void PeerAllReduce(Stream stream, const Peers& peers, DType dtype, void* data, int64_t count);
// Whether PeerSumNorm serves T rows of H elements.
bool CanSumNorm(DType dtype, int64_t rows, int64_t columns);
void PeerSumNorm(Stream stream, const Peers& peers, const SumNormArgs& args);
// out + r · stride = rank r's part. At most kMaxPeerBytes a part.
void PeerAllGather(Stream stream, const Peers& peers, const void* part, std::byte* out,
                   int64_t bytes, int64_t stride);

}  // namespace hayate::comm::cuda
