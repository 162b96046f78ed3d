#include "tensor/buffer.h"

namespace hayate {

Result<Buffer> Buffer::Allocate(Device& device, size_t bytes, MemoryKind kind) {
  ASSIGN_OR_RETURN(void* data, device.Allocate(bytes, kind));
  Buffer buffer;
  buffer.device_ = &device;
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.size_ = bytes;
  buffer.kind_ = kind;
  return buffer;
}

TensorView Buffer::View(DType dtype, Shape shape) const {
  const TensorView view{data_, dtype, shape};
  CHECK_LE(view.num_bytes(), static_cast<int64_t>(size_)) << shape.ToString();
  return view;
}

}  // namespace hayate
