#pragma once
// Weights for people who compare them: /get_weights_by_name.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "weights/checkpoint.h"

namespace hayate::app {

// The tensor of that name in the checkpoint that was loaded, in f32, as a JSON list: of the first
// `max_rows` values, or of so many rows of a matrix. kNotFound, or kInvalidArgument where that is
// more than kMaxListedWeights values.
Result<std::string> WeightsJson(const weights::Checkpoint& checkpoint, const std::string& name,
                                int64_t max_rows);

inline constexpr int64_t kMaxListedWeights = 1 << 20;

}  // namespace hayate::app
