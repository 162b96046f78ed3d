// The default model on a GPU: the greedy answers of transformers' fp32 run wherever its two best
// logits are apart.

#include <gtest/gtest.h>

#include <optional>

#include "models/testing/default_model.h"
#include "models/testing/greedy_deviation.h"

namespace hayate::models {
namespace {

// Nothing, and a failed test, where HAYATE_MODEL does not name the default model.
std::optional<testing::GreedyDeviation> OnGpu(ops::MatmulPrecision precision, DType kv_dtype) {
  const auto path = testing::DefaultModelPath();
  EXPECT_TRUE(path.has_value()) << "HAYATE_MODEL does not name the default model";
  if (!path) return {};
  const auto checkpoint = weights::Checkpoint::Open(*path).value();
  const nlohmann::json cases = testing::ReadGreedyCases();
  const auto d = testing::CompareGreedy(checkpoint, cases, cases.size(),
                                        {.device = DeviceKind::kCuda,
                                         .precision = precision,
                                         .kv_dtype = kv_dtype,
                                         .page_tokens = 64,
                                         .max_context = 1024,
                                         .max_tokens = 512});
  std::printf("%d of %d tokens equal, logits off by %.4f at most, widest flipped margin %.4f\n",
              d.equal, d.tokens, static_cast<double>(d.worst_first_logit), d.widest_flipped_margin);
  return d;
}

TEST(DefaultModelOnGpu, ExactModeGivesTheAnswersOfTransformers) {
  const auto d = OnGpu(ops::MatmulPrecision::kExact, DType::kF32);
  if (!d) return;
  EXPECT_LT(d->worst_first_logit, 2e-3f);
  EXPECT_LT(d->widest_flipped_margin, 2e-3);
}

TEST(DefaultModelOnGpu, FastModeGivesThemWhereverTheBestTokenIsClear) {
  const auto d = OnGpu(ops::MatmulPrecision::kFast, DType::kBF16);
  if (!d) return;
  // bf16 activations, keys and values under an fp32 residual stream, on logits of about 20.
  EXPECT_LT(d->worst_first_logit, 0.5f);
  EXPECT_LT(d->widest_flipped_margin, 0.2);
}

}  // namespace
}  // namespace hayate::models
