#include "weights/detail/tensor_extent.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "base/error.h"

namespace hayate::weights::detail {

Status SetShape(std::span<const uint64_t> extents, TensorInfo& info) {
  CHECK_LE(extents.size(), size_t{Shape::kMaxRank});
  // 2^60 elements of at most 8 bytes stay below 2^63.
  constexpr uint64_t kMaxElements = uint64_t{1} << 60;
  uint64_t elements = 1;
  info.shape = Shape();
  for (const uint64_t extent : extents) {
    if (extent == 0 && extents.size() > 1) {
      return Error(ErrorCode::kUnsupported, "an extent of zero in a tensor of rank {}",
                   extents.size());
    }
    if (extent > kMaxElements || (extent != 0 && elements > kMaxElements / extent)) {
      return Error(ErrorCode::kDataLoss, "extents [{}] are too large",
                   fmt::join(extents.begin(), extents.end(), ", "));
    }
    elements *= extent;
    info.shape.Append(static_cast<int64_t>(extent));
  }
  if (extents.empty()) info.shape.Append(1);  // a scalar is a vector of one
  const DTypeInfo& dtype = Info(info.dtype);
  const int64_t cols = info.shape[info.shape.rank() - 1];
  if (cols % dtype.block_elements != 0) {
    return Error(ErrorCode::kDataLoss, "rows of {} elements are not whole {} blocks of {}", cols,
                 dtype.name, dtype.block_elements);
  }
  info.bytes = elements / static_cast<uint64_t>(dtype.block_elements) *
               static_cast<uint64_t>(dtype.block_bytes);
  return OkStatus();
}

Status CheckNoOverlap(const TensorIndex& tensors) {
  std::vector<const TensorIndex::value_type*> order;
  order.reserve(tensors.size());
  for (const auto& tensor : tensors) {
    if (tensor.second.bytes > 0) order.push_back(&tensor);
  }
  std::ranges::sort(order, {}, [](const auto* tensor) {
    return std::tuple(tensor->second.file_index, tensor->second.offset);
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const auto& [name, info] = *order[i];
    const auto& [previous_name, previous] = *order[i - 1];
    if (previous.file_index == info.file_index && info.offset < previous.offset + previous.bytes) {
      return Error(ErrorCode::kDataLoss,
                   "tensor '{}' at offset {} overlaps tensor '{}' ({} bytes at offset {})", name,
                   info.offset, previous_name, previous.bytes, previous.offset);
    }
  }
  return OkStatus();
}

}  // namespace hayate::weights::detail
