#pragma once
// The exchange of rows between GPUs of this process that reach each other's memory.

#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "comm/token_exchange.h"
#include "tensor/device.h"

namespace hayate::comm {

// Element r is handed to the thread of rank r, whose device is devices[r]; `group` is of
// MakePeerGroup over them. The placements that Dispatch may be given, at the addresses where they
// lie now; their tables are copied, hence PlacementsChanged. Devices, group and placements outlive
// the exchanges. kUnsupported in a build without CUDA.
//
// Rows have multiples of 16 bytes. All calls can be captured in graphs, with the rows of every rank
// that they were captured for; nothing waits for a device.
Result<std::vector<std::unique_ptr<TokenExchange>>> MakePeerExchange(
    std::span<Device* const> devices, std::span<const std::unique_ptr<Group>> group,
    std::span<const ExpertPlacement> placements);

}  // namespace hayate::comm
