#pragma once
// Groups whose ranks are GPUs of this process that reach each other's memory (NVLink).

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/group.h"
#include "tensor/device.h"

namespace hayate::comm {

inline constexpr int kMaxPeerRanks = 8;

// Element r is handed to the thread of rank r, whose device is devices[r]. kUnsupported in a build
// without CUDA, or where two devices cannot reach each other's memory. The devices outlive the
// group.
//
// Sums are of f32 or bf16, in multiples of 16 bytes. More than kMaxPeerBytes goes in pieces. All
// calls can be captured in graphs.
Result<std::vector<std::unique_ptr<Group>>> MakePeerGroup(std::span<Device* const> devices);
inline constexpr int64_t kMaxPeerBytes = int64_t{2} << 20;

}  // namespace hayate::comm
