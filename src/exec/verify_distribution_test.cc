// What the verify rule brings is distributed as plain sampling is: chi-square tests of the
// sampler's draws through rows with drafts, against probabilities computed by another way, for
// drafters that share the request's random numbers, that have their own, and that do not draw at
// all. Rules that are nearly right fail the same tests.

#include <gtest/gtest.h>

#include <algorithm>

#include "exec/testing/draft_language.h"
#include "ops/sampling/sampling.h"
#include "spec/verify.h"

namespace hayate::exec {
namespace {

using testing::Answer;
using testing::Deviation;
using testing::kAnswer;
using testing::kDrafts;
using testing::kPrompt;
using testing::kSuspicious;
using testing::kVocab;
using testing::Language;
using testing::Sampler;

enum class Drafter : uint8_t { kSameNumbers, kOwnNumbers, kLikeliest };
enum class Rule : uint8_t {
  kVerify,
  kAlwaysAccept,
  // A draft stands where it equals the draw; else the target draws anew.
  kDrawAgain,
};

class Decoder {
 public:
  Decoder(const Language& language, const Sampler& sampler)
      : language_(language), sampler_(sampler) {}

  Answer Plain(uint64_t seed) {
    Answer answer;
    TokenId before = kPrompt;
    for (int32_t i = 0; i < kAnswer; ++i) {
      before = answer[static_cast<size_t>(i)] = Draw(seed, i, language_.Target(i, before));
    }
    return answer;
  }

  Answer Drafted(uint64_t seed, Drafter drafter, Rule rule) {
    std::vector<TokenId> text;
    while (text.size() < kAnswer) {
      const auto begin = static_cast<int32_t>(text.size());
      const std::vector<TokenId> drafts = Guess(seed, drafter, begin, Last(text));
      for (int32_t i = 0;; ++i) {
        const spec::Verdict verdict = Judge(rule, drafts, seed, begin, i, Last(text));
        text.push_back(verdict.token);
        if (!verdict.goes_on) break;
      }
    }
    Answer answer;
    std::copy_n(text.begin(), kAnswer, answer.begin());
    return answer;
  }

 private:
  static TokenId Last(const std::vector<TokenId>& text) {
    return text.empty() ? kPrompt : text.back();
  }

  TokenId Draw(uint64_t seed, int32_t at, std::vector<float> logits) {
    ops::SamplingRow row = {.logits = logits.data(),
                            .temperature = sampler_.temperature,
                            .top_k = sampler_.top_k,
                            .top_p = sampler_.top_p,
                            .min_p = sampler_.min_p,
                            .bias = {},
                            .banned = {},
                            .seed = seed,
                            .position = static_cast<uint64_t>(at)};
    ops::SamplingResult result;
    ops::Sample({}, workspace_, kVocab, {&row, 1}, {&result, 1});
    return result.token;
  }

  std::vector<TokenId> Guess(uint64_t seed, Drafter drafter, int32_t begin, TokenId before) {
    std::vector<TokenId> drafts;
    for (int32_t i = begin; i < begin + kDrafts; ++i) {
      const std::vector<float>& logits = language_.Draft(i, before);
      if (drafter == Drafter::kLikeliest) {
        before = static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
      } else {
        before = Draw(drafter == Drafter::kSameNumbers ? seed : ~seed, i, logits);
      }
      drafts.push_back(before);
    }
    return drafts;
  }

  spec::Verdict Judge(Rule rule, const std::vector<TokenId>& drafts, uint64_t seed, int32_t begin,
                      int32_t i, TokenId before) {
    const std::vector<float>& logits = language_.Target(begin + i, before);
    const TokenId drawn = Draw(seed, begin + i, logits);
    const spec::Verdict right = spec::Verify(drafts, -1, static_cast<size_t>(i), drawn);
    if (static_cast<size_t>(i) == drafts.size() || rule == Rule::kVerify) return right;
    if (rule == Rule::kAlwaysAccept) return {drafts[static_cast<size_t>(i)], true};
    if (right.goes_on) return right;
    return {Draw(seed + (uint64_t{1} << 40), begin + i, logits), false};
  }

  const Language& language_;
  const Sampler sampler_;
  std::unique_ptr<Device> device_ = MakeCpuDevice(0);
  Workspace workspace_{
      Buffer::Allocate(*device_, static_cast<size_t>(ops::SampleWorkspaceBytes(kVocab))).value()};
};

constexpr Drafter kDrafters[] = {Drafter::kSameNumbers, Drafter::kOwnNumbers, Drafter::kLikeliest};
TEST(VerifyDistribution, IsThatOfPlainSamplingWhateverTheDrafterAndTheSampler) {
  constexpr uint64_t kAnswers = 10000;
  for (uint64_t seed = 1; seed <= 16; ++seed) {
    const testing::LanguageCase tested = testing::RandomCase(seed);
    Decoder decoder(tested.language, tested.sampler);
    std::vector<Answer> plain;
    for (uint64_t i = 0; i < kAnswers; ++i) plain.push_back(decoder.Plain(i * 977 + seed));
    EXPECT_LT(Deviation(tested.language, tested.sampler, plain), kSuspicious) << "case " << seed;
    for (const Drafter drafter : kDrafters) {
      // Not only as they are distributed: one by one.
      for (uint64_t i = 0; i < kAnswers; ++i) {
        ASSERT_EQ(decoder.Drafted(i * 977 + seed, drafter, Rule::kVerify), plain[i]);
      }
    }
  }
}

TEST(VerifyDistribution, OfAHundredThousandAnswersIsThatOfTheModel) {
  const Language language(3, 1.0f, 0.8f);
  const Sampler sampler = {.temperature = 0.9f, .top_k = 14, .top_p = 0.95f, .min_p = 0.02f};
  Decoder decoder(language, sampler);
  for (const Drafter drafter : kDrafters) {
    std::vector<Answer> answers;
    for (uint64_t seed = 0; seed < 100'000; ++seed) {
      answers.push_back(decoder.Drafted(seed, drafter, Rule::kVerify));
    }
    EXPECT_LT(Deviation(language, sampler, answers), kSuspicious);
  }
}

TEST(VerifyDistribution, OfWrongRulesIsFoundOut) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    const testing::LanguageCase tested = testing::RandomCase(seed);
    Decoder decoder(tested.language, tested.sampler);
    for (const Rule rule : {Rule::kAlwaysAccept, Rule::kDrawAgain}) {
      for (const Drafter drafter : kDrafters) {
        std::vector<Answer> answers;
        for (uint64_t i = 0; i < 40'000; ++i) {
          answers.push_back(decoder.Drafted(i * 977 + seed, drafter, rule));
        }
        EXPECT_GT(Deviation(tested.language, tested.sampler, answers), 2 * kSuspicious)
            << "case " << seed << ", rule " << static_cast<int>(rule) << ", drafter "
            << static_cast<int>(drafter);
      }
    }
  }
}

}  // namespace
}  // namespace hayate::exec
