#pragma once
// comm::MakePeerGroup in a build with CUDA.

#include "comm/peer_group.h"

namespace hayate::comm::cuda {

Result<std::vector<std::unique_ptr<Group>>> MakePeerGroup(std::span<Device* const> devices);

}  // namespace hayate::comm::cuda
