#include "comm/cuda/peer_group.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "base/error.h"
#include "comm/cuda/device_scope.h"
#include "comm/cuda/peer_memory.h"
#include "tensor/buffer.h"
#include "tensor/cuda/check.h"

namespace hayate::comm::cuda {
namespace {

// One for all ranks. Freed with the last of them.
struct Shared {
  std::vector<Buffer> memory;  // PeerMemory of each rank
  Buffer poison;               // pinned: the uint32 that kernels look at while they wait
};

class PeerGroup final : public Group {
 public:
  PeerGroup(std::shared_ptr<Shared> shared, const Peers& peers)
      : shared_(std::move(shared)), peers_(peers) {}

  int rank() const override { return peers_.rank; }
  int size() const override { return peers_.size; }

  void AllReduce(Stream stream, TensorView data) override {
    if (size() == 1) return;
    const int64_t element = Info(data.dtype).block_bytes;
    const int64_t count = data.shape.num_elements(), piece = kMaxPeerBytes / element;
    for (int64_t at = 0; at < count; at += piece) {
      PeerAllReduce(stream, peers_, data.dtype, data.data + at * element,
                    std::min(piece, count - at));
    }
  }

  bool AllReduceAddNorm(Stream stream, const SumNormArgs& args) override {
    const ConstTensorView part = args.part;
    if (size() == 1 || !CanSumNorm(part.dtype, part.rows(), part.cols())) return false;
    PeerSumNorm(stream, peers_, args);
    return true;
  }

  void AllGather(Stream stream, ConstTensorView part, TensorView out) override {
    const int64_t bytes = part.num_bytes();
    CHECK_EQ(out.num_bytes(), bytes * size());
    for (int64_t at = 0; at < bytes; at += kMaxPeerBytes) {
      PeerAllGather(stream, peers_, part.data + at, out.data + at,
                    std::min(kMaxPeerBytes, bytes - at), bytes);
    }
  }

  void Barrier(Stream stream) override {
    if (size() > 1) PeerAllGather(stream, peers_, nullptr, nullptr, 0, 0);
  }

  // Lone flags: they publish nothing.
  void Poison() override { std::atomic_ref(*poison()).store(1, std::memory_order_relaxed); }
  bool poisoned() const override {
    return std::atomic_ref(*poison()).load(std::memory_order_relaxed) != 0;
  }
  uint32_t* poison() const { return reinterpret_cast<uint32_t*>(shared_->poison.data()); }

 private:
  const std::shared_ptr<Shared> shared_;
  const Peers peers_;
};

// Lets `from` read and write the memory of `to`. Ranks may share a device: tests run so.
Status EnableAccess(int from, int to) {
  if (from == to) return OkStatus();
  int possible = 0;
  if (cudaDeviceCanAccessPeer(&possible, from, to) != cudaSuccess || possible == 0) {
    return Error(ErrorCode::kUnsupported, "cuda{} cannot reach the memory of cuda{}", from, to);
  }
  cudaSetDevice(from);
  const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
  if (error == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();  // not sticky, but kept until it is asked for
  } else if (error != cudaSuccess) {
    return Error(ErrorCode::kUnsupported, "peer access from cuda{} to cuda{}: {}", from, to,
                 cudaGetErrorString(error));
  }
  return OkStatus();
}

Status EnableAllAccess(const Shared& shared) {
  Status status = OkStatus();
  for (const Buffer& from : shared.memory) {
    for (const Buffer& to : shared.memory) {
      if (!status.ok()) continue;
      status = EnableAccess(DeviceIndexOf(from.data()), DeviceIndexOf(to.data()));
    }
  }
  return status;
}

}  // namespace

Result<std::vector<std::unique_ptr<Group>>> MakePeerGroup(std::span<Device* const> devices) {
  const DeviceScope restore;
  auto shared = std::make_shared<Shared>();
  for (Device* device : devices) {
    ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(*device, sizeof(PeerMemory)));
    CUDA_CHECK(device, cudaSetDevice(DeviceIndexOf(memory.data())));
    CUDA_CHECK(device, cudaMemset(memory.data(), 0, sizeof(PeerMemory)));
    CUDA_CHECK(device, cudaDeviceSynchronize());
    LoadPeerKernels(device);
    LoadSumNormKernels(device);
    shared->memory.push_back(std::move(memory));
    RETURN_IF_ERROR(device->status());
  }
  ASSIGN_OR_RETURN(shared->poison,
                   Buffer::Allocate(*devices[0], sizeof(uint32_t), MemoryKind::kPinned));
  *reinterpret_cast<uint32_t*>(shared->poison.data()) = 0;
  RETURN_IF_ERROR(EnableAllAccess(*shared));

  Peers peers = {.poisoned = reinterpret_cast<const uint32_t*>(shared->poison.data()),
                 .size = static_cast<int>(devices.size()),
                 .max_blocks = MaxBlocksOf(shared->memory)};
  for (size_t r = 0; r < devices.size(); ++r) {
    peers.memory[r] = reinterpret_cast<PeerMemory*>(shared->memory[r].data());
  }
  std::vector<std::unique_ptr<Group>> group;
  for (; peers.rank < peers.size; ++peers.rank) {
    group.push_back(std::make_unique<PeerGroup>(shared, peers));
  }
  return group;
}

uint32_t* PoisonOf(const Group& member) { return static_cast<const PeerGroup&>(member).poison(); }

}  // namespace hayate::comm::cuda
