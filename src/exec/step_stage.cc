#include "exec/step_stage.h"

#include "base/align.h"
#include "base/check.h"
#include "ops/step_inputs/step_inputs.h"

namespace hayate::exec {
namespace {
constexpr size_t kAlignment = 256;
}

Result<StepStage> StepStage::Create(Device& device, size_t capacity) {
  StepStage stage;
  for (Buffer& host : stage.host_) {
    ASSIGN_OR_RETURN(host, Buffer::Allocate(device, capacity, MemoryKind::kPinned));
  }
  ASSIGN_OR_RETURN(stage.device_, Buffer::Allocate(device, capacity));
  return stage;
}

void StepStage::Send(Stream stream) {
  ops::FetchInputs(stream, device_.data(), host_[side_].data(), static_cast<int64_t>(used_));
}

size_t StepStage::Reserve(size_t bytes) {
  const size_t offset = used_;
  used_ += AlignUp(bytes, kAlignment);
  CHECK_LE(used_, device_.size()) << "step stage overflow";
  return offset;
}

}  // namespace hayate::exec
