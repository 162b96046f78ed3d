#pragma once
// Which devices ranks lie on, and making one current for a while: joining ranks is the work of one
// thread, for all devices.

#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <span>

#include "comm/cuda/peer_memory.h"
#include "tensor/buffer.h"

namespace hayate::comm::cuda {

// The index of the device that holds `memory`.
inline int DeviceIndexOf(const void* memory) {
  cudaPointerAttributes attributes = {};
  return cudaPointerGetAttributes(&attributes, memory) == cudaSuccess ? attributes.device : -1;
}

// How many blocks the kernels of an exchange may have whose ranks have these memories. Where ranks
// share a device, the blocks of all but one may wait at once while that one's other kernels want
// whole multiprocessors: together they stay below half of them.
inline int MaxBlocksOf(std::span<const Buffer> memory) {
  std::map<int, int> ranks_of;
  for (const Buffer& own : memory) ++ranks_of[DeviceIndexOf(own.data())];
  int most = 1;
  for (const auto& [device, ranks] : ranks_of) most = std::max(most, ranks);
  return std::max(1, kMaxBlocks / most);
}

// The calling thread's device is the same after it as before.
class DeviceScope {
 public:
  DeviceScope() { cudaGetDevice(&index_); }
  ~DeviceScope() { cudaSetDevice(index_); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int index_ = 0;
};

}  // namespace hayate::comm::cuda
