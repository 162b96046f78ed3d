#pragma once
// Which experts of a layer a rank loads.

#include <cstdint>
#include <vector>

#include "models/layers/head_shard.h"
#include "models/registry.h"

namespace hayate::models {

struct HeldExperts {
  // Their indices in the layer, in the order of their places on the rank.
  std::vector<int32_t> ids;
  // The index of the first where the rank is asked for experts by their index in the layer; 0 where
  // rows come to it for a place.
  int32_t first = 0;
};

// A range of the experts; where rows travel, what the placement gives the rank.
HeldExperts HeldExpertsOf(const LoadOptions& options, int layer, int32_t num_experts);
// How many they are, in every layer.
int64_t NumHeldExperts(const LoadOptions& options, int32_t num_experts);
// The dp ranks whose rows may meet at this rank's experts; 0 where no rows travel.
int NumDpRanks(const LoadOptions& options);
// The rank's part of a shared expert's features, in units of `unit`; where rows travel, all.
Range SharedFeaturesOf(const LoadOptions& options, int64_t shared_size, int64_t unit);

}  // namespace hayate::models
