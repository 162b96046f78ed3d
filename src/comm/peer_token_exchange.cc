#include "comm/peer_token_exchange.h"

#include "base/check.h"
#include "base/error.h"
#include "comm/cuda/token_exchange.h"
#include "comm/peer_group.h"
#include "tensor/cuda_build.h"

namespace hayate::comm {

Result<std::vector<std::unique_ptr<TokenExchange>>> MakePeerExchange(
    std::span<Device* const> devices, std::span<const std::unique_ptr<Group>> group,
    std::span<const ExpertPlacement> placements) {
  CHECK(!devices.empty() && devices.size() <= static_cast<size_t>(kMaxPeerRanks));
  CHECK_EQ(devices.size(), group.size());
  if constexpr (kCudaBuild) {
    return cuda::MakePeerExchange(devices, group, placements);
  } else {
    return Status(ErrorCode::kUnsupported, "this binary was built without CUDA");
  }
}

}  // namespace hayate::comm
