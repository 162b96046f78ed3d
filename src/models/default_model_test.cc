// The default model's greedy answers to ten prompts, against transformers' fp32 run of the
// dequantised weights (tests/golden/smollm2).

#include "models/testing/default_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "models/testing/model_runner.h"

namespace hayate::models {
namespace {

using testing::ModelRunner;
using testing::RunnerOptions;
using testing::WantedLogits;

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
    std::ifstream file("tests/golden/smollm2/expected.json");
    cases_ = nlohmann::json::parse(file).at("cases");
    ASSERT_EQ(cases_.size(), 10u);
  }

  struct Deviation {
    float worst_first_logit = 0.0f;      // of the 16 best after the prompt
    double widest_flipped_margin = 0.0;  // of a token whose runner-up won
    int tokens = 0, equal = 0;
  };
  // Each answer is fed as it is, so that every token is judged behind the right ones.
  Deviation Compare(const RunnerOptions& options) {
    auto runner = ModelRunner::Create(*checkpoint_, options).value();
    const size_t v = static_cast<size_t>(runner->vocab_size());
    Deviation deviation;
    for (size_t n = 0; n < kNumPrompts; ++n) {
      const auto& c = cases_[n];
      std::vector<int32_t> tokens = c.at("prompt_ids");
      const std::vector<int32_t> answer = c.at("greedy_ids");
      const std::vector<double> margins = c.at("margins");
      const std::vector<float> first = runner->Step({{0, tokens}});
      for (const auto& [id, logit] : c.at("first").get<std::vector<std::pair<size_t, float>>>()) {
        deviation.worst_first_logit =
            std::max(deviation.worst_first_logit, std::abs(first[id] - logit));
      }
      std::vector<float> logits = first;
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
    RecordProperty("worst_first_logit", std::to_string(deviation.worst_first_logit));
    RecordProperty("widest_flipped_margin", std::to_string(deviation.widest_flipped_margin));
    return deviation;
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
  const Deviation d = Compare(Options(ops::MatmulPrecision::kExact, DType::kF32));
  EXPECT_EQ(d.tokens, 48 * static_cast<int>(kNumPrompts));
  // Sums of 576 and 1,536 products in another order, thirty layers deep, on logits of about 20.
  EXPECT_LT(d.worst_first_logit, 2e-3f);
  EXPECT_LT(d.widest_flipped_margin, 2e-3);
}

TEST_F(DefaultModel, FastModeGivesThemWhereverTheBestTokenIsClear) {
  const Deviation d = Compare(Options(ops::MatmulPrecision::kFast, DType::kF16));
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
