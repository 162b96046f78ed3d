#pragma once
// The tensors that a checkpoint of a DeepSeek V3 or V3.2 config holds.

#include <vector>

#include "models/detail/deepseek_v3_config.h"
#include "weights/checkpoint.h"

namespace hayate::models {

// As ListTensors: matrices of `dtype`, or E4M3 under scales where the config says so. Layers that
// predict further tokens are left out.
std::vector<weights::DummyTensor> ListDeepseekV3Tensors(const DeepseekV3Config& config,
                                                        DType dtype);

}  // namespace hayate::models
