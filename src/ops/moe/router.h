#pragma once
// Which experts a token goes to, and with what weights: the gates of every mixture family.
//
//   z = gate · x (+ its bias)            the caller's fp32 product
//   s = score(z)
//   choice: the K largest of s + choice_bias (of equals the smaller index), inside the best groups
//           where there are groups; or what `listed` says for the token's id
//   w = s[chosen], divided by their sum where `renormalise` is set, times `scale`
//
// The choice bias never enters the weights. All in fp32; a token's result depends on its row alone.

#include <cstdint>

#include "base/status.h"
#include "tensor/device.h"
#include "tensor/tensor_view.h"

namespace hayate::ops {

enum class RouterScore : uint8_t {
  kSoftmax,          // over all experts: Qwen
  kSoftmaxOfChosen,  // choice by z, softmax over the chosen alone: GPT-OSS
  kSigmoid,          // DeepSeek V3
  kSqrtSoftplus,     // DeepSeek V4: √(ln(1 + eᶻ))
};

inline constexpr int32_t kMaxExperts = 4096;
inline constexpr int32_t kMaxExpertsPerToken = 64;

struct RouterConfig {
  RouterScore score = RouterScore::kSoftmax;
  int32_t num_experts = 0;  // E
  int32_t top_k = 0;        // K
  // Group g is experts [g · E/G, (g + 1) · E/G). The `top_groups` groups with the largest sums of
  // their two best choice scores stay.
  int32_t num_groups = 1;  // G
  int32_t top_groups = 1;
  bool renormalise = false;
  float sum_epsilon = 0.0f;  // added to the sum that divides
  float scale = 1.0f;
};

// kInvalidArgument names the number that does not fit.
Status CheckRouter(const RouterConfig& config);

struct RouteArgs {
  ConstTensorView logits;              // [T, E] f32: z
  const float* choice_bias = nullptr;  // [E] or null
  // Hash layers of DeepSeek V4: the experts of a token id, in place of a choice. [V, K] or null.
  const int32_t* listed = nullptr;
  const int32_t* token_ids = nullptr;  // [T], where `listed` is given
  int32_t* experts = nullptr;          // [T, K] out, best first (listed: in the list's order)
  float* weights = nullptr;            // [T, K] out
};
void Route(Stream stream, const RouterConfig& config, const RouteArgs& args);

// The definition: sorts, in double where the formula sums.
void RouteReference(const RouterConfig& config, const RouteArgs& args);

}  // namespace hayate::ops
