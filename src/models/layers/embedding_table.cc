#include "models/layers/embedding_table.h"

#include <cstring>

namespace hayate::models {

Result<EmbeddingTable> PlaceTable(Device& device, ConstTensorView table) {
  if (device.kind() == DeviceKind::kCpu) return EmbeddingTable{table, Buffer()};
  const auto bytes = static_cast<size_t>(table.num_bytes());
  ASSIGN_OR_RETURN(Buffer storage, Buffer::Allocate(device, bytes));
  device.Upload(storage.data(), table.data, bytes);
  const ConstTensorView view{storage.data(), table.dtype, table.shape};
  return EmbeddingTable{view, std::move(storage)};
}

Result<EmbeddingTable> PlaceHostTable(Device& device, ConstTensorView table) {
  if (device.kind() == DeviceKind::kCpu) return EmbeddingTable{table, Buffer()};
  const auto bytes = static_cast<size_t>(table.num_bytes());
  ASSIGN_OR_RETURN(Buffer storage, Buffer::Allocate(device, bytes, MemoryKind::kPinned));
  std::memcpy(storage.data(), table.data, bytes);
  const ConstTensorView view{storage.data(), table.dtype, table.shape};
  return EmbeddingTable{view, std::move(storage)};
}

}  // namespace hayate::models
