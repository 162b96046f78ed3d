#include <gtest/gtest.h>

#include <cmath>

#include "ops/sampling/device_sampler.h"
#include "ops/sampling/sampling.h"
#include "ops/sampling/testing/random_batch.h"
#include "ops/testing/gpu.h"

namespace hayate::ops {
namespace {

using namespace testing;

class DeviceSamplerGpu : public GpuTest {
 protected:
  struct Drawn {
    std::vector<SampledToken> results;
    std::vector<int32_t> top_ids, last_tokens, counts;
    std::vector<float> top_logprobs;
  };

  // `kernel` over rows whose lists and logits are those of `batch`.
  Drawn Draw(const RandomBatch& batch, const std::vector<SamplerRow>& rows, SamplerKernel kernel) {
    const auto logits = ToDevice(batch.logits_);
    const auto row_array = ToDevice(rows);
    const auto bias_ids = ToDevice(batch.bias_ids_), banned_ids = ToDevice(batch.banned_ids_);
    const auto bias_values = ToDevice(batch.bias_values_);
    const auto bitmasks = ToDevice(batch.bitmasks_);
    const auto last_tokens = ToDevice(batch.last_tokens_), counts = ToDevice(batch.counts_);
    const auto results = Poisoned<SampledToken>(rows.size());
    const auto top_ids = Poisoned<int32_t>(rows.size() * kMaxTopLogprobs);
    const auto top_logprobs = Poisoned<float>(rows.size() * kMaxTopLogprobs);
    SampleRows(stream_, {.kernel = kernel,
                         .num_rows = static_cast<int32_t>(rows.size()),
                         .vocab_size = batch.vocab_size_,
                         .logits = logits.data(),
                         .rows = row_array.data(),
                         .bias_ids = bias_ids.data(),
                         .bias_values = bias_values.data(),
                         .banned_ids = banned_ids.data(),
                         .bitmasks = bitmasks.data(),
                         .state = {.last_tokens = last_tokens.data(), .counts = counts.data()},
                         .results = results.data(),
                         .top_ids = top_ids.data(),
                         .top_logprobs = top_logprobs.data()});
    return {ToHost(results), ToHost(top_ids), ToHost(last_tokens), ToHost(counts),
            ToHost(top_logprobs)};
  }

  // The two ends take the logarithm of the total in double: one rounding to fp32 apart at most.
  static void ExpectLogprob(float got, float expected, const std::string& what) {
    if (std::isinf(expected)) {
      EXPECT_EQ(got, expected) << what;
    } else {
      EXPECT_NEAR(got, expected, std::abs(expected) * 0x1p-23 + 0x1p-40) << what;
    }
  }

  void ExpectAsTheReference(RandomBatch& batch, const std::string& what) {
    const Drawn got = Draw(batch, batch.rows_, SamplerKernelFor(batch.rows_));
    SampleRowsReference(batch.HostArgs());
    for (size_t r = 0; r < batch.rows_.size(); ++r) {
      const SamplerRow& row = batch.rows_[r];
      if (row.logits_row < 0) {
        EXPECT_EQ(got.results[r].token, -1) << "padding was written";
        continue;
      }
      const SampledToken& expected = batch.results_[r];
      const std::string where = what + ", row " + std::to_string(r) + ": temperature " +
                                std::to_string(row.temperature) + " top_k " +
                                std::to_string(row.top_k) + " top_p " + std::to_string(row.top_p);
      EXPECT_EQ(got.results[r].token, expected.token) << where;
      EXPECT_EQ(got.results[r].bad_logits, expected.bad_logits) << where;
      if (row.num_logprobs < 0 || expected.bad_logits != 0) continue;
      EXPECT_EQ(got.results[r].rank, expected.rank) << where;
      ExpectLogprob(got.results[r].logprob, expected.logprob, where);
      for (int32_t i = 0; i < std::min(row.num_logprobs, batch.vocab_size_); ++i) {
        const size_t at = r * kMaxTopLogprobs + static_cast<size_t>(i);
        EXPECT_EQ(got.top_ids[at], batch.top_ids_[at]) << where << " top " << i;
        ExpectLogprob(got.top_logprobs[at], batch.top_logprobs_[at], where);
      }
    }
    EXPECT_EQ(got.last_tokens, batch.last_tokens_) << what;
    EXPECT_EQ(got.counts, batch.counts_) << what;
  }
};

TEST_F(DeviceSamplerGpu, DrawsWhatTheReferenceDraws) {
  Rng rng(21);
  for (int round = 0; round < 60 && !HasFailure(); ++round) {
    const int32_t vocab_size = rng.Between(1, round % 3 == 0 ? 20000 : 300);
    RandomBatch batch(rng, vocab_size, 48);
    ExpectAsTheReference(batch,
                         "round " + std::to_string(round) + ", V " + std::to_string(vocab_size));
  }
}

TEST_F(DeviceSamplerGpu, HoldsTheVocabulariesOfServedModels) {
  Rng rng(22);
  for (const int32_t vocab_size : {32000, 49152, 151936, 50257, 262144, kMaxSamplerVocab}) {
    RandomBatch batch(rng, vocab_size, 6);
    ExpectAsTheReference(batch, "V " + std::to_string(vocab_size));
  }
}

TEST_F(DeviceSamplerGpu, TheGreedyKernelTakesTheLowestOfTheHighest) {
  Rng rng(23);
  for (int round = 0; round < 40 && !HasFailure(); ++round) {
    RandomBatch batch(rng, rng.Between(1, 5000), 30);
    for (SamplerRow& row : batch.rows_) {
      if (row.logits_row >= 0) row = {.logits_row = row.logits_row, .slot = row.slot};
    }
    ASSERT_EQ(SamplerKernelFor(batch.rows_), SamplerKernel::kGreedy);
    ExpectAsTheReference(batch, "round " + std::to_string(round));
  }
}

TEST_F(DeviceSamplerGpu, ARowDrawsTheSameInAnyBatch) {
  Rng rng(24);
  RandomBatch batch(rng, 5000, 64);
  const Drawn together = Draw(batch, batch.rows_, SamplerKernel::kAny);
  for (size_t r = 0; r < batch.rows_.size(); ++r) {
    const Drawn alone = Draw(batch, {batch.rows_[r]}, SamplerKernel::kAny);
    EXPECT_EQ(alone.results[0].token, together.results[r].token) << r;
  }
}

TEST_F(DeviceSamplerGpu, CountsStartWithTheTokensAlreadyGenerated) {
  const std::vector<CountsStart> starts = {{.counts_row = 1, .begin = 1, .end = 4}, {}};
  const std::vector<int32_t> outputs = {9, 2, 0, 2};
  const auto counts = Poisoned<int32_t>(6);
  const auto starts_array = ToDevice(starts);
  const auto outputs_array = ToDevice(outputs);
  StartCounts(stream_, {.num_starts = 2,
                        .vocab_size = 3,
                        .starts = starts_array.data(),
                        .outputs = outputs_array.data(),
                        .state = {.counts = counts.data()}});
  EXPECT_EQ(ToHost(counts), (std::vector<int32_t>{-1, -1, -1, 1, 0, 2}));
}

}  // namespace
}  // namespace hayate::ops
