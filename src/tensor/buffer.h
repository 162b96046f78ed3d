#pragma once
// Owned memory of a device. Move-only; must not outlive its device. Allocated at start-up, never in
// a step.

#include <cstddef>
#include <span>
#include <utility>

#include "base/status.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate {

class Buffer {
 public:
  Buffer() = default;
  static Result<Buffer> Allocate(Device& device, size_t bytes,
                                 MemoryKind kind = MemoryKind::kDevice);

  Buffer(Buffer&& other) noexcept { Swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~Buffer() {
    if (data_ != nullptr) device_->Free(data_, size_, kind_);
  }

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  TensorView View(DType dtype, Shape shape) const;

 private:
  void Swap(Buffer& other) {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(kind_, other.kind_);
  }

  Device* device_ = nullptr;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  MemoryKind kind_ = MemoryKind::kDevice;
};

}  // namespace hayate
