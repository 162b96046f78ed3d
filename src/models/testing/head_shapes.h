#pragma once
// DeepSeek V4 and V4.1 with heads, indexers and windows of the published sizes on few narrow layers
// of random weights (bench/models/*-heads): what tiny checkpoints are too narrow for, packed rows
// first of all.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/tensor_list.h"
#include "models/testing/model_runner.h"

namespace hayate::models::testing {

class HeadShapes : public ::testing::TestWithParam<std::string> {
 protected:
  // Beyond a window and a block of 128, so that both kinds of key are seen and selections bite.
  static constexpr int32_t kTokens = 150;

  HeadShapes()
      : checkpoint_(weights::Checkpoint::OpenConfig("bench/models/" + GetParam()).value()) {
    const auto tensors = ListTensors(checkpoint_, DType::kBF16).value();
    EXPECT_TRUE(checkpoint_.AddDummyTensors(tensors, 4).ok());
    for (int32_t i = 0; i < kTokens; ++i) tokens_.push_back((37 * i + i * i) % 1000);
  }

  // Logits of every token, the prompt cut before `cuts`.
  std::vector<float> Logits(RunnerOptions options, std::vector<int32_t> cuts = {}) {
    options.num_pages = 16;
    options.max_tokens = kTokens;
    const auto runner = ModelRunner::Create(checkpoint_, options).value();
    cuts.push_back(kTokens);
    std::vector<float> all;
    int32_t begin = 0;
    for (const int32_t end : cuts) {
      const auto& logits =
          runner->Step({{0, {tokens_.begin() + begin, tokens_.begin() + end}, WantedLogits::kAll}});
      all.insert(all.end(), logits.begin(), logits.end());
      begin = end;
    }
    return all;
  }

  weights::Checkpoint checkpoint_;
  std::vector<int32_t> tokens_;
};

// 1 − 2 Σab / Σ(a² + b²), as the vendor's tests compare: 0 for equals, 1 for nothing in common. No
// number (which compares as no bound) where a value is none.
inline double CosineDifference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double product = 0, squares = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    product += double{a[i]} * b[i];
    squares += double{a[i]} * a[i] + double{b[i]} * b[i];
  }
  return 1 - 2 * product / squares;
}

}  // namespace hayate::models::testing
