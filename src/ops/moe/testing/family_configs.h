#pragma once
// Layers as model families have them, in sizes of a test's own.

#include <cstdint>

#include "ops/moe/moe.h"

namespace hayate::ops::testing {

struct LayerSizes {
  int32_t hidden = 0, expert = 0, shared = 0;
};

inline MoeConfig QwenMoe(const LayerSizes& sizes) {
  return {.router = {.score = RouterScore::kSoftmax,
                     .num_experts = 12,
                     .top_k = 3,
                     .renormalise = true},
          .hidden_size = sizes.hidden,
          .expert_size = sizes.expert,
          .shared_size = sizes.shared};
}

inline MoeConfig GptOssMoe(const LayerSizes& sizes) {
  return {.router = {.score = RouterScore::kSoftmaxOfChosen, .num_experts = 8, .top_k = 4},
          .form = {.limit = 7.0f, .alpha = 1.702f, .up_shift = 1.0f},
          .hidden_size = sizes.hidden,
          .expert_size = sizes.expert};
}

inline MoeConfig DeepseekV4Moe(const LayerSizes& sizes) {
  return {.router = {.score = RouterScore::kSqrtSoftplus,
                     .num_experts = 16,
                     .top_k = 6,
                     .renormalise = true,
                     .scale = 1.5f},
          .form = {.limit = 1.0f},
          .place = RoutingWeightPlace::kBeforeDown,
          .hidden_size = sizes.hidden,
          .expert_size = sizes.expert,
          .shared_size = sizes.shared};
}

}  // namespace hayate::ops::testing
