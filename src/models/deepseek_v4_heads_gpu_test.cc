// Heads of the published sizes (models/testing/head_shapes.h) on a GPU against the CPU, on the same
// random weights.

#include "models/testing/head_shapes.h"

namespace hayate::models {
namespace {

using testing::CosineDifference;
using testing::HeadShapes;
using testing::RunnerOptions;

// The vendor's bounds: 1e-6 where fp32 sums differ in their order, 1e-3 behind quantisers, whose
// codes a sum's last bit can tip over.
TEST_P(HeadShapes, ExactModeGivesTheCpusLogitsForEveryChunking) {
  const std::vector<float> expected = Logits({.page_tokens = 128});
  RunnerOptions options = {.device = DeviceKind::kCuda, .page_tokens = 128};
  EXPECT_LT(CosineDifference(Logits(options), expected), 1e-6);
  options.page_tokens = 256;
  const std::vector<float> cut = Logits(options, {61, 62, 127, 128, 129, 145, 149});
  EXPECT_LT(CosineDifference(cut, expected), 1e-6);
}

TEST_P(HeadShapes, PackedRowsGiveTheCpusLogits) {
  RunnerOptions options = {.kv_dtype = DType::kF8E4M3, .page_tokens = 128};
  const std::vector<float> expected = Logits(options);
  options.device = DeviceKind::kCuda;
  EXPECT_LT(CosineDifference(Logits(options), expected), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(Published, HeadShapes,
                         ::testing::Values("deepseek-v4-heads", "deepseek-v4.1-heads"),
                         [](const auto& test) {
                           return std::string(test.param == "deepseek-v4-heads" ? "V4" : "V41");
                         });

}  // namespace
}  // namespace hayate::models
