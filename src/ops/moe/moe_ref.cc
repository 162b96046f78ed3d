#include <cmath>
#include <vector>

#include "ops/moe/moe.h"

namespace hayate::ops {
namespace {

// Row `row` of a [rows, width] list, or null of an empty one.
const float* Row(const std::vector<float>& values, int64_t row, int64_t width) {
  return values.empty() ? nullptr : values.data() + row * width;
}

// down · glu(gate_up · x + bias) + bias for one token, added to `out` with a weight.
void AddGlu(const SwiGluForm& form, const float* gate_up, const float* gate_up_bias,
            const float* down, const float* down_bias, const float* x, int64_t h, int64_t f,
            float weight, float* out) {
  std::vector<float> both(static_cast<size_t>(2 * f)), hidden(static_cast<size_t>(f)),
      result(static_cast<size_t>(h));
  MatmulReference(both.data(), x, gate_up, gate_up_bias, 1, 2 * f, h);
  ClampedSwiGluReference(
      {.out = {reinterpret_cast<std::byte*>(hidden.data()), DType::kF32, {1, f}},
       .gate_up = TensorView{reinterpret_cast<std::byte*>(both.data()), DType::kF32, {1, 2 * f}},
       .form = form});
  MatmulReference(result.data(), hidden.data(), down, down_bias, 1, h, f);
  for (int64_t i = 0; i < h; ++i) out[i] += weight * result[static_cast<size_t>(i)];
}

}  // namespace

void MoeReference(const MoeConfig& config, const MoeReferenceWeights& weights, const float* x,
                  const int32_t* token_ids, int64_t num_tokens, float* out) {
  const int64_t h = config.hidden_size, f = config.expert_size, experts = config.router.num_experts;
  std::vector<float> logits(static_cast<size_t>(experts));
  std::vector<int32_t> chosen(static_cast<size_t>(config.router.top_k));
  std::vector<float> routing(chosen.size());
  for (int64_t t = 0; t < num_tokens; ++t, x += h, out += h) {
    MatmulReference(logits.data(), x, weights.gate.data(), Row(weights.gate_bias, 0, 0), 1, experts,
                    h);
    RouteReference(
        config.router,
        {.logits =
             TensorView{reinterpret_cast<std::byte*>(logits.data()), DType::kF32, {1, experts}},
         .choice_bias = Row(weights.choice_bias, 0, 0),
         .listed = weights.listed.empty() ? nullptr : weights.listed.data(),
         .token_ids = token_ids == nullptr ? nullptr : token_ids + t,
         .experts = chosen.data(),
         .weights = routing.data()});
    for (int64_t i = 0; i < h; ++i) out[i] = 0.0f;
    for (size_t j = 0; j < chosen.size(); ++j) {
      const int64_t e = chosen[j];
      AddGlu(config.form, Row(weights.gate_up, e, 2 * f * h), Row(weights.gate_up_bias, e, 2 * f),
             Row(weights.down, e, h * f), Row(weights.down_bias, e, h), x, h, f, routing[j], out);
    }
    if (weights.shared_gate_up.empty()) continue;
    float gate = 1.0f;
    if (!weights.shared_gate.empty()) {
      MatmulReference(&gate, x, weights.shared_gate.data(), nullptr, 1, 1, h);
      gate = 1.0f / (1.0f + std::exp(-gate));
    }
    AddGlu(config.form, weights.shared_gate_up.data(), nullptr, weights.shared_down.data(), nullptr,
           x, h, config.shared_size, gate, out);
  }
}

}  // namespace hayate::ops
