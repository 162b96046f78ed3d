#pragma once
// What must be known of a model's experts before they are placed on ranks.

#include <cstdint>

#include "base/status.h"
#include "weights/checkpoint.h"

namespace hayate::models {

struct ExpertShape {
  int32_t num_layers = 0;   // of the model, sparse or not
  int32_t num_experts = 0;  // of a sparse layer; 0: there is none
  int32_t top_k = 0;        // chosen for a row
};

// Reads the config alone. Errors as LoadModel's.
Result<ExpertShape> ReadExpertShape(const weights::Checkpoint& checkpoint);

}  // namespace hayate::models
