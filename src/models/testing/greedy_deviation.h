#pragma once
// The default model's greedy answers to ten prompts, against transformers' fp32 run of the
// dequantised weights (tests/golden/smollm2).

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "models/testing/model_runner.h"

namespace hayate::models::testing {

inline nlohmann::json ReadGreedyCases() {
  std::ifstream file("tests/golden/smollm2/expected.json");
  return nlohmann::json::parse(file).at("cases");
}

struct GreedyDeviation {
  float worst_first_logit = 0.0f;      // of the 16 best after the prompt
  double widest_flipped_margin = 0.0;  // of a token whose runner-up won
  int tokens = 0, equal = 0;
};

// Each answer is fed as it is, so that every token is judged behind the right ones.
inline GreedyDeviation CompareGreedy(const weights::Checkpoint& checkpoint,
                                     const nlohmann::json& cases, size_t num_prompts,
                                     const RunnerOptions& options) {
  auto runner = ModelRunner::Create(checkpoint, options).value();
  const size_t v = static_cast<size_t>(runner->vocab_size());
  GreedyDeviation deviation;
  for (size_t n = 0; n < num_prompts; ++n) {
    const auto& c = cases[n];
    const std::vector<int32_t> tokens = c.at("prompt_ids");
    const std::vector<int32_t> answer = c.at("greedy_ids");
    const std::vector<double> margins = c.at("margins");
    std::vector<float> logits = runner->Step({{0, tokens}});
    for (const auto& [id, logit] : c.at("first").get<std::vector<std::pair<size_t, float>>>()) {
      deviation.worst_first_logit =
          std::max(deviation.worst_first_logit, std::abs(logits[id] - logit));
    }
    const std::vector<int32_t> fed(answer.begin(), answer.end() - 1);
    const auto& rest = runner->Step({{0, fed, WantedLogits::kAll}});
    logits.insert(logits.end(), rest.begin(), rest.end());
    for (size_t i = 0; i < answer.size(); ++i) {
      const auto row = logits.begin() + static_cast<long>(i * v);
      const auto best = std::max_element(row, row + static_cast<long>(v)) - row;
      ++deviation.tokens;
      deviation.equal += best == answer[i];
      if (best != answer[i]) {
        deviation.widest_flipped_margin = std::max(deviation.widest_flipped_margin, margins[i]);
      }
    }
    runner->Drop(0);
  }
  return deviation;
}

}  // namespace hayate::models::testing
