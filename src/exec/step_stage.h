#pragma once
// The host memory that a step's inputs are written to and the device memory that they travel to at
// once. Arrays are taken in order and lie at the same offsets on both sides; a step that takes
// the same sizes again finds them at the same addresses. Owner: the rank's thread.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

namespace hayate::exec {

// An array on both sides.
template <typename T>
struct Staged {
  std::span<T> host;
  T* device = nullptr;
};

class StepStage {
 public:
  // Two steps may be written before the first has travelled: there are as many host sides.
  static constexpr int kNumSides = 2;
  static Result<StepStage> Create(Device& device, size_t capacity);

  // Begins a step on host side `side`, whose last step must have travelled.
  void Begin(int side) {
    side_ = side;
    used_ = 0;
  }
  // Uninitialised. Running out is a wrong bound of ours: CHECK.
  template <typename T>
  Staged<T> Take(size_t count) {
    const size_t offset = Reserve(count * sizeof(T));
    return {{reinterpret_cast<T*>(host_[side_].data() + offset), count},
            reinterpret_cast<T*>(device_.data() + offset)};
  }
  template <typename T>
  Staged<T> Put(std::span<const T> values) {
    Staged<T> staged = Take<T>(values.size());
    std::copy(values.begin(), values.end(), staged.host.begin());
    return staged;
  }
  // Queues the journey of everything taken.
  void Send(Stream stream);

 private:
  size_t Reserve(size_t bytes);

  Buffer host_[kNumSides];
  Buffer device_;
  int side_ = 0;
  size_t used_ = 0;
};

}  // namespace hayate::exec
