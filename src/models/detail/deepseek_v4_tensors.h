#pragma once
// The tensors that a DeepSeek V4 or V4.1 checkpoint holds, in the vendor's layout.

#include <vector>

#include "models/detail/deepseek_draft_config.h"
#include "models/detail/deepseek_v41_config.h"
#include "models/detail/deepseek_v4_config.h"
#include "weights/checkpoint.h"

namespace hayate::models {

// Experts packed in E2M1, other matrices as published. With the blocks of `draft`.
std::vector<weights::DummyTensor> ListDeepseekV4Tensors(const DeepseekV4Config& config,
                                                        const DeepseekDraftConfig& draft);
// The same without the vision tower.
std::vector<weights::DummyTensor> ListDeepseekV41Tensors(const DeepseekV41Config& config,
                                                         const DeepseekDraftConfig& draft);

}  // namespace hayate::models
