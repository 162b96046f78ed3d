#pragma once
// Expert plans and counts as JSON, in the fields of SGLang's --init-expert-location:
//
//   {"physical_to_logical_map": [[3, 0, …], …]}   a layer's physical experts in order, per layer
//   {"logical_count": [[120, 7, …], …]}           rows that each logical expert got, per layer
//
// Layers are all of the model's; those without experts may be empty. Counts that a server dumped
// can be given to the next one as they are.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "comm/expert_placement.h"

namespace hayate::comm {

inline constexpr int kMaxPlanLayers = 4096;
inline constexpr int kMaxPlanExperts = 1 << 16;  // of a layer

// Sets the plan's map or counts; its other fields stay. kDataLoss names the field and the place.
Status ReadExpertPlan(std::string_view json, ExpertPlan& plan);
// `counts` [layers, num_experts].
std::string WriteExpertCounts(std::span<const int64_t> counts, int num_experts);

}  // namespace hayate::comm
