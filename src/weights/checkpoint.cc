#include "weights/checkpoint.h"

#include <utility>

#include "base/error.h"
#include "weights/detail/tensor_extent.h"
#include "weights/finite.h"

namespace hayate::weights {
namespace {

constexpr int kDummyFile = -1;

}  // namespace

std::string_view FormatName(CheckpointFormat format) {
  return format == CheckpointFormat::kGguf ? "gguf" : "safetensors";
}

std::string Checkpoint::Where(std::string_view name, const TensorInfo& info) const {
  if (info.file_index == kDummyFile)
    return fmt::format("{}: dummy tensor '{}'", path_.string(), name);
  return fmt::format("{}: tensor '{}' at offset {}",
                     file_paths_[static_cast<size_t>(info.file_index)], name, info.offset);
}

Result<ConstTensorView> Checkpoint::Tensor(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return Error(ErrorCode::kNotFound, "{}: there is no tensor '{}'", path_.string(), name);
  }
  const TensorInfo& info = found->second;
  if (info.file_index == kDummyFile) return dummy_->Get(name, info.dtype, info.shape);
  const MappedFile& file = files_[static_cast<size_t>(info.file_index)];
  return ConstTensorView(file.bytes().data() + info.offset, info.dtype, info.shape);
}

Result<ConstTensorView> Checkpoint::Tensor(std::string_view name, const Shape& shape) const {
  ASSIGN_OR_RETURN(const ConstTensorView tensor, Tensor(name));
  if (tensor.shape == shape) return tensor;
  return Error(ErrorCode::kDataLoss, "{}: its shape is {}, the model needs {}",
               Where(name, tensors_.find(name)->second), tensor.shape.ToString(), shape.ToString());
}

Status Checkpoint::CheckFinite(std::string_view name) const {
  ASSIGN_OR_RETURN(const ConstTensorView tensor, Tensor(name));
  const TensorInfo& info = tensors_.find(name)->second;
  if (info.file_index == kDummyFile) return OkStatus();
  const std::optional<int64_t> found = FindNonFinite(tensor);
  if (!found) return OkStatus();
  return Error(ErrorCode::kDataLoss, "{}: the {} at offset {} is not finite", Where(name, info),
               IsBlockType(info.dtype) ? "block scale" : "value",
               info.offset + static_cast<uint64_t>(*found));
}

Status Checkpoint::LoadShard(std::string_view name, const ShardSpec& spec, TensorView out) const {
  ASSIGN_OR_RETURN(const ConstTensorView tensor, Tensor(name));
  if (Status status = CopyShard(tensor, spec, out); !status.ok()) {
    return status.Under(Where(name, tensors_.find(name)->second));
  }
  if (!IsBlockType(tensor.dtype) || out.shape.num_elements() == 0) return OkStatus();
  // The scan of the whole tensor, for the file offset, happens only when its part is damaged.
  return FindNonFinite(out) ? CheckFinite(name) : OkStatus();
}

void Checkpoint::Prefetch(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end() || found->second.file_index == kDummyFile) return;
  const TensorInfo& info = found->second;
  files_[static_cast<size_t>(info.file_index)].WillNeed(info.offset, info.bytes);
}

void Checkpoint::Release(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end() || found->second.file_index == kDummyFile) return;
  const TensorInfo& info = found->second;
  files_[static_cast<size_t>(info.file_index)].DontNeed(info.offset, info.bytes);
}

Status Checkpoint::AddDummyTensors(std::vector<DummyTensor> tensors, uint64_t seed) {
  if (!tensors_.empty()) {
    return Error(ErrorCode::kInvalidArgument, "{}: dummy tensors beside real ones", path_.string());
  }
  TensorIndex index;
  for (DummyTensor& tensor : tensors) {
    std::vector<uint64_t> extents;
    for (int axis = 0; axis < tensor.shape.rank(); ++axis) {
      extents.push_back(static_cast<uint64_t>(tensor.shape[axis]));
    }
    TensorInfo info;
    info.dtype = tensor.dtype;
    info.file_index = kDummyFile;
    if (Status status = detail::SetShape(extents, info); !status.ok()) {
      return status.Under(fmt::format("{}: dummy tensor '{}'", path_.string(), tensor.name));
    }
    if (!index.emplace(tensor.name, info).second) {
      return Error(ErrorCode::kInvalidArgument, "{}: dummy tensor '{}' is listed twice",
                   path_.string(), tensor.name);
    }
  }
  tensors_ = std::move(index);
  dummy_ = std::make_unique<DummyStore>(seed);
  return OkStatus();
}

}  // namespace hayate::weights
