// Heads of the published sizes (models/testing/head_shapes.h) on a GPU against the CPU, on the same
// random weights.

#include <algorithm>
#include <cmath>

#include "models/testing/head_shapes.h"

namespace hayate::models {
namespace {

using testing::CosineDifference;
using testing::HeadShapes;
using testing::RunnerOptions;

float WorstDifference(const std::vector<float>& a, const std::vector<float>& b) {
  float worst = a.size() == b.size() ? 0.0f : INFINITY;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    worst = difference <= worst ? worst : difference;  // a NaN must not compare as close
  }
  return worst;
}

// fp32 sums in another order, as models_golden_gpu_test.cc.
TEST_P(HeadShapes, ExactModeGivesTheCpusLogitsForEveryChunking) {
  const std::vector<float> expected = Logits({.page_tokens = 128});
  RunnerOptions options = {.device = DeviceKind::kCuda, .page_tokens = 128};
  const float whole = WorstDifference(Logits(options), expected);
  options.page_tokens = 256;
  const float cut = WorstDifference(Logits(options, {61, 62, 127, 128, 129, 145, 149}), expected);
  std::printf("%s exact: whole %g, cut %g\n", GetParam().c_str(), whole, cut);
  EXPECT_LT(whole, 1e-3f);
  EXPECT_LT(cut, 1e-3f);
}

// The same quantisers: what differs is a code here and there that a sum's last bit tips over.
TEST_P(HeadShapes, PackedRowsGiveTheCpusLogits) {
  RunnerOptions options = {.kv_dtype = DType::kF8E4M3, .page_tokens = 128};
  const std::vector<float> expected = Logits(options);
  options.device = DeviceKind::kCuda;
  const double difference = CosineDifference(Logits(options), expected);
  options.precision = ops::MatmulPrecision::kFast;
  const double fast = CosineDifference(Logits(options), expected);
  std::printf("%s packed: exact %g, fast %g\n", GetParam().c_str(), difference, fast);
  EXPECT_LT(difference, 1e-3);
  EXPECT_LT(fast, 2e-2);
}

INSTANTIATE_TEST_SUITE_P(Published, HeadShapes,
                         ::testing::Values("deepseek-v4-heads", "deepseek-v4.1-heads"),
                         [](const auto& test) {
                           return std::string(test.param == "deepseek-v4-heads" ? "V4" : "V41");
                         });

}  // namespace
}  // namespace hayate::models
