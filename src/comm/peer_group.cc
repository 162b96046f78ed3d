#include "comm/peer_group.h"

#include "base/error.h"
#include "comm/cuda/peer_group.h"
#include "tensor/cuda_build.h"

namespace hayate::comm {

Result<std::vector<std::unique_ptr<Group>>> MakePeerGroup(std::span<Device* const> devices) {
  if (devices.empty() || devices.size() > static_cast<size_t>(kMaxPeerRanks)) {
    return Error(ErrorCode::kInvalidArgument, "a group of {} devices; must be 1 to {}",
                 devices.size(), kMaxPeerRanks);
  }
  for (const Device* device : devices) {
    if (device->kind() != DeviceKind::kCuda) {
      return Error(ErrorCode::kUnsupported, "{} has no peer memory", device->name());
    }
  }
  if constexpr (kCudaBuild) {
    return cuda::MakePeerGroup(devices);
  } else {
    return Status(ErrorCode::kUnsupported, "this binary was built without CUDA");
  }
}

}  // namespace hayate::comm
