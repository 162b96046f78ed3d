#pragma once
// comm::MakePeerGroup in a build with CUDA.

#include <cstdint>

#include "comm/peer_group.h"

namespace hayate::comm::cuda {

Result<std::vector<std::unique_ptr<Group>>> MakePeerGroup(std::span<Device* const> devices);

// Of a member that MakePeerGroup made: the word in host memory that its devices read, not 0 once
// the group is poisoned. Kernels may write it too.
uint32_t* PoisonOf(const Group& member);

}  // namespace hayate::comm::cuda
