// The default model's greedy answers to ten prompts, against transformers' fp32 run of the
// dequantised weights (tests/golden/smollm2).

#include "models/testing/default_model.h"

#include <gtest/gtest.h>

#include "models/testing/greedy_deviation.h"
#include "models/testing/model_runner.h"

namespace hayate::models {
namespace {

using testing::CompareGreedy;
using testing::GreedyDeviation;
using testing::ModelRunner;
using testing::RunnerOptions;

// ThreadSanitizer makes the arithmetic some twenty times slower.
#if defined(__SANITIZE_THREAD__)
constexpr size_t kNumPrompts = 1;
#else
constexpr size_t kNumPrompts = 10;
#endif

class DefaultModel : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto path = testing::DefaultModelPath();
    if (!path) GTEST_SKIP() << "no default model here; tools/fetch_model.sh fetches it";
    checkpoint_ = std::make_unique<weights::Checkpoint>(weights::Checkpoint::Open(*path).value());
    cases_ = testing::ReadGreedyCases();
    ASSERT_EQ(cases_.size(), 10u);
  }

  GreedyDeviation Compare(const RunnerOptions& options) {
    const GreedyDeviation d = CompareGreedy(*checkpoint_, cases_, kNumPrompts, options);
    RecordProperty("worst_first_logit", std::to_string(d.worst_first_logit));
    RecordProperty("widest_flipped_margin", std::to_string(d.widest_flipped_margin));
    return d;
  }

  std::unique_ptr<weights::Checkpoint> checkpoint_;
  nlohmann::json cases_;
};

RunnerOptions Options(ops::MatmulPrecision precision, DType kv_dtype) {
  return {.num_ranks = 2,
          .precision = precision,
          .kv_dtype = kv_dtype,
          .max_context = 1024,
          .max_tokens = 512};
}

TEST_F(DefaultModel, ExactModeGivesTheAnswersOfTransformers) {
  const GreedyDeviation d = Compare(Options(ops::MatmulPrecision::kExact, DType::kF32));
  EXPECT_EQ(d.tokens, 48 * static_cast<int>(kNumPrompts));
  // Sums of 576 and 1,536 products in another order, thirty layers deep, on logits of about 20.
  EXPECT_LT(d.worst_first_logit, 2e-3f);
  EXPECT_LT(d.widest_flipped_margin, 2e-3);
}

TEST_F(DefaultModel, FastModeGivesThemWhereverTheBestTokenIsClear) {
  const GreedyDeviation d = Compare(Options(ops::MatmulPrecision::kFast, DType::kF16));
  // Activations of 8 bits move logits by 0.52 at most here, and 10 of 480 best tokens lose to a
  // runner-up that was at most 0.22 behind.
  EXPECT_LT(d.worst_first_logit, 0.8f);
  EXPECT_LT(d.widest_flipped_margin, 0.4);
  EXPECT_GE(d.equal, d.tokens - 15);
}

TEST_F(DefaultModel, ThePositionAfterAnyChunkingHasTheSameBits) {
  auto runner =
      ModelRunner::Create(*checkpoint_, Options(ops::MatmulPrecision::kFast, DType::kF16)).value();
  const std::vector<int32_t> tokens = cases_[6].at("prompt_ids");
  const std::vector<float> whole = runner->Step({{0, tokens}});
  for (const size_t chunk : {1u, 7u, 32u}) {
    std::vector<float> last;
    for (size_t begin = 0; begin < tokens.size(); begin += chunk) {
      const size_t end = std::min(tokens.size(), begin + chunk);
      last = runner->Step(
          {{1,
            {tokens.begin() + static_cast<long>(begin), tokens.begin() + static_cast<long>(end)}}});
    }
    EXPECT_EQ(last, whole) << "chunks of " << chunk;
    runner->Drop(1);
  }
}

}  // namespace
}  // namespace hayate::models
