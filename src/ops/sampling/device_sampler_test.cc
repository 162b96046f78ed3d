#include "ops/sampling/device_sampler.h"

#include <gtest/gtest.h>

#include "ops/sampling/sampling.h"
#include "ops/sampling/testing/random_batch.h"

namespace hayate::ops {
namespace {

TEST(DeviceSampler, TokensGoToTheirSlotsAndCounts) {
  // Three ids; the second row is padding, the third scores.
  const std::vector<float> logits = {1.0f, 3.0f, 2.0f, 0.0f, 5.0f, 5.0f};
  std::vector<SamplerRow> rows(3);
  rows[0] = {.logits_row = 0, .slot = 4, .counts_row = 1};
  rows[2] = {.logits_row = 1, .slot = 5, .scored_token = 2, .num_logprobs = 2};
  std::vector<int32_t> last_tokens(6, -1), counts(6, 0);
  std::vector<SampledToken> results(3);
  std::vector<int32_t> top_ids(3 * kMaxTopLogprobs, -1);
  std::vector<float> top_logprobs(3 * kMaxTopLogprobs);
  SampleRows({}, {.num_rows = 3,
                  .vocab_size = 3,
                  .logits = logits.data(),
                  .rows = rows.data(),
                  .state = {.last_tokens = last_tokens.data(), .counts = counts.data()},
                  .results = results.data(),
                  .top_ids = top_ids.data(),
                  .top_logprobs = top_logprobs.data()});
  EXPECT_EQ(results[0].token, 1);
  EXPECT_EQ(last_tokens, (std::vector<int32_t>{-1, -1, -1, -1, 1, -1}));
  EXPECT_EQ(counts, (std::vector<int32_t>{0, 0, 0, 0, 1, 0}));
  EXPECT_EQ(results[2].token, 2);
  EXPECT_EQ(results[2].rank, 1);  // id 1 has the same logit and comes before
  EXPECT_EQ(top_ids[2 * kMaxTopLogprobs], 1);
  EXPECT_EQ(top_ids[2 * kMaxTopLogprobs + 1], 2);
  EXPECT_EQ(top_ids[2 * kMaxTopLogprobs + 2], -1);
}

TEST(DeviceSampler, OnlyPlainGreedyRowsTakeTheGreedyKernel) {
  std::vector<SamplerRow> rows(2);
  rows[0].logits_row = 0;
  EXPECT_EQ(SamplerKernelFor(rows), SamplerKernel::kGreedy);
  for (const SamplerRow& other :
       {SamplerRow{.temperature = 1.0f}, SamplerRow{.scored_token = 3}, SamplerRow{.counts_row = 0},
        SamplerRow{.num_logprobs = 0}, SamplerRow{.bitmask_row = 0}, SamplerRow{.bias_end = 1},
        SamplerRow{.banned_end = 1}}) {
    rows[1] = other;
    rows[1].logits_row = -1;
    EXPECT_EQ(SamplerKernelFor(rows), SamplerKernel::kGreedy);  // padding
    rows[1].logits_row = 1;
    EXPECT_EQ(SamplerKernelFor(rows), SamplerKernel::kAny);
  }
}

TEST(DeviceSampler, CountsStartWithTheTokensAlreadyGenerated) {
  const std::vector<CountsStart> starts = {{.counts_row = 1, .begin = 1, .end = 4}, {}};
  const std::vector<int32_t> outputs = {9, 2, 0, 2};
  std::vector<int32_t> counts = {7, 7, 7, 7, 7, 7};
  StartCounts({}, {.num_starts = 2,
                   .vocab_size = 3,
                   .starts = starts.data(),
                   .outputs = outputs.data(),
                   .state = {.counts = counts.data()}});
  EXPECT_EQ(counts, (std::vector<int32_t>{7, 7, 7, 1, 0, 2}));
}

}  // namespace
}  // namespace hayate::ops
