#pragma once
// Ranks that each have a device object of their own, all on GPU 0: their kernels run side by side.
// Calls that wait for the whole GPU (allocations of pinned memory are such) would wait for kernels
// whose partners are not queued yet, so ranks meet on the host between preparing and queueing.

#include <algorithm>
#include <barrier>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/check.h"
#include "comm/peer_group.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

namespace hayate::comm::testing {

class RanksOnOneGpu {
 public:
  struct Rank {
    std::unique_ptr<Device> device;
    Stream stream = {};
  };

  explicit RanksOnOneGpu(int num_ranks) : meeting_(num_ranks) {
    for (int r = 0; r < num_ranks; ++r) {
      auto device = MakeCudaDevice({.memory_fraction = 0.02});
      CHECK(device.ok()) << device.status().message();
      ranks_.push_back({.device = std::move(device).value()});
      ranks_.back().stream = ranks_.back().device->NewStream();
      devices_.push_back(ranks_.back().device.get());
    }
    groups_ = MakePeerGroup(devices_).value();
  }
  // The group first: its memory lies on all devices.
  ~RanksOnOneGpu() { groups_.clear(); }

  std::span<Device* const> devices() const { return devices_; }
  std::span<const std::unique_ptr<Group>> groups() const { return groups_; }
  Device& device(int rank) { return *devices_[static_cast<size_t>(rank)]; }
  Stream stream(int rank) const { return ranks_[static_cast<size_t>(rank)].stream; }
  Group& group(int rank) { return *groups_[static_cast<size_t>(rank)]; }

  // `body` of each rank on a thread of its own; returns when all have.
  void OnEveryRank(const std::function<void(int rank)>& body) {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < std::ssize(ranks_); ++rank) {
      threads.emplace_back([&body, rank] { body(rank); });
    }
  }
  // Of the threads of OnEveryRank.
  void MeetOnHost() { meeting_.arrive_and_wait(); }

 private:
  std::barrier<> meeting_;
  std::vector<Rank> ranks_;
  std::vector<Device*> devices_;
  std::vector<std::unique_ptr<Group>> groups_;
};

// Brings device memory to the host. Made before an exchange is queued.
class Reader {
 public:
  Reader(Device& device, size_t max_bytes)
      : device_(device),
        pinned_(Buffer::Allocate(device, max_bytes, MemoryKind::kPinned).value()),
        done_(device.NewEvent()) {}

  std::vector<std::byte> Read(Stream stream, const void* from, size_t bytes) {
    CHECK_LE(bytes, pinned_.size());
    device_.Copy(stream, pinned_.data(), from, bytes);
    device_.Record(done_, stream);
    device_.Synchronize(done_);
    return {pinned_.data(), pinned_.data() + bytes};
  }
  template <typename T>
  std::vector<T> ReadValues(Stream stream, const T* from, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    const std::vector<std::byte> bytes = Read(stream, from, values.size() * sizeof(T));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(values.data()));
    return values;
  }

 private:
  Device& device_;
  const Buffer pinned_;
  const Event done_;
};

}  // namespace hayate::comm::testing
