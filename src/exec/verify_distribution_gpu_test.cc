// The device's draws through rows with drafts are distributed as the model says: chi-square tests
// of 10⁵ answers (exec/testing/draft_language.h), for a drafter that shares the request's random
// numbers and for one that names the likeliest token.

#include "exec/testing/draft_language.h"
#include "ops/sampling/device_sampler.h"
#include "ops/testing/gpu.h"
#include "spec/verify.h"

namespace hayate::exec {
namespace {

using testing::Answer;
using testing::kAnswer;
using testing::kDrafts;
using testing::kPrompt;
using testing::kVocab;
using testing::Language;
using testing::Sampler;

class VerifyDistributionGpu : public ops::testing::GpuTest {
 protected:
  static constexpr size_t kBatch = 4096;  // answers at a time

  // One token to be drawn, from logits of its own.
  struct Draw {
    uint64_t seed = 0;
    int32_t at = 0;
    const std::vector<float>* logits = nullptr;
  };
  std::vector<TokenId> DrawAll(const std::vector<Draw>& draws, const Sampler& sampler) {
    std::vector<float> logits;
    std::vector<ops::SamplerRow> rows;
    for (const Draw& draw : draws) {
      logits.insert(logits.end(), draw.logits->begin(), draw.logits->end());
      rows.push_back({.seed = draw.seed,
                      .position = static_cast<uint64_t>(draw.at),
                      .logits_row = static_cast<int32_t>(rows.size()),
                      .temperature = sampler.temperature,
                      .top_k = sampler.top_k,
                      .top_p = sampler.top_p,
                      .min_p = sampler.min_p});
    }
    const auto device_logits = ToDevice(logits);
    const auto device_rows = ToDevice(rows);
    const auto results = Poisoned<ops::SampledToken>(rows.size());
    ops::SampleRows(stream_, {.kernel = ops::SamplerKernelFor(rows),
                              .num_rows = static_cast<int32_t>(rows.size()),
                              .vocab_size = kVocab,
                              .logits = device_logits.data(),
                              .rows = device_rows.data(),
                              .results = results.data()});
    std::vector<TokenId> tokens;
    for (const ops::SampledToken& result : ToHost(results)) tokens.push_back(result.token);
    return tokens;
  }

  // Answers of the seeds [first, first + kBatch), row by row with drafts.
  void Append(const Language& language, const Sampler& sampler, bool draws_guesses, uint64_t first,
              std::vector<Answer>& answers) {
    std::vector<std::vector<TokenId>> texts(kBatch);
    std::vector<size_t> open(kBatch);
    std::iota(open.begin(), open.end(), size_t{0});
    const auto before = [](const std::vector<TokenId>& text, const std::vector<TokenId>& drafts,
                           size_t i) {
      return i > 0 ? drafts[i - 1] : text.empty() ? kPrompt : text.back();
    };
    while (!open.empty()) {
      std::vector<std::vector<TokenId>> drafts(open.size());
      for (size_t i = 0; i < size_t{kDrafts}; ++i) {
        std::vector<Draw> guesses;
        for (size_t n = 0; n < open.size(); ++n) {
          const std::vector<TokenId>& text = texts[open[n]];
          const auto at = static_cast<int32_t>(text.size() + i);
          guesses.push_back({first + open[n], at, &language.Draft(at, before(text, drafts[n], i))});
        }
        const std::vector<TokenId> drawn =
            DrawAll(guesses, draws_guesses ? sampler : Sampler{0.0f});
        for (size_t n = 0; n < open.size(); ++n) drafts[n].push_back(drawn[n]);
      }
      std::vector<Draw> draws;
      for (size_t n = 0; n < open.size(); ++n) {
        for (size_t i = 0; i <= size_t{kDrafts}; ++i) {
          const std::vector<TokenId>& text = texts[open[n]];
          const auto at = static_cast<int32_t>(text.size() + i);
          draws.push_back({first + open[n], at, &language.Target(at, before(text, drafts[n], i))});
        }
      }
      const std::vector<TokenId> drawn = DrawAll(draws, sampler);
      std::vector<size_t> left;
      for (size_t n = 0; n < open.size(); ++n) {
        std::vector<TokenId>& text = texts[open[n]];
        bool goes_on = true;
        for (size_t i = 0; goes_on; ++i) {
          const spec::Verdict verdict =
              spec::Verify(drafts[n], -1, i, drawn[n * (size_t{kDrafts} + 1) + i]);
          text.push_back(verdict.token);
          goes_on = verdict.goes_on;
        }
        if (text.size() < size_t{kAnswer}) left.push_back(open[n]);
      }
      open = std::move(left);
    }
    for (const std::vector<TokenId>& text : texts) {
      std::copy_n(text.begin(), kAnswer, answers.emplace_back().begin());
    }
  }
};

TEST_F(VerifyDistributionGpu, OfAHundredThousandAnswersIsThatOfTheModel) {
  const Language language(3, 1.0f, 0.8f);
  const Sampler samplers[] = {{.temperature = 0.9f, .top_k = 14, .top_p = 0.95f, .min_p = 0.02f},
                              {.temperature = 1.3f}};
  for (const Sampler& sampler : samplers) {
    for (const bool draws_guesses : {true, false}) {
      std::vector<Answer> answers;
      while (answers.size() < 100'000) {
        Append(language, sampler, draws_guesses, answers.size(), answers);
      }
      EXPECT_LT(testing::Deviation(language, sampler, answers), testing::kSuspicious);
    }
  }
}

}  // namespace
}  // namespace hayate::exec
