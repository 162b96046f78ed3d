// What the verify rule brings is distributed as plain sampling is: chi-square tests of the
// sampler's draws through rows with drafts, against probabilities computed by another way, for
// drafters that share the request's random numbers, that have their own, and that do not draw at
// all. Rules that are nearly right fail the same tests.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/rng.h"
#include "ops/sampling/sampling.h"
#include "spec/verify.h"

namespace hayate::exec {
namespace {

constexpr int32_t kVocab = 16;
constexpr int32_t kDrafts = 3;
constexpr int32_t kAnswer = 3;
constexpr TokenId kPrompt = 5;
using Answer = std::array<TokenId, kAnswer>;
using Distribution = std::array<double, kVocab>;

struct Sampler {
  float temperature = 1.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
};

// The softmax of the logits as `sampler` cuts it, in double.
Distribution Probabilities(const std::vector<float>& logits, const Sampler& sampler) {
  std::array<size_t, kVocab> order;
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  const size_t kept = sampler.top_k > 0 ? static_cast<size_t>(sampler.top_k) : kVocab;
  Distribution p = {};
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    sum += p[order[i]] =
        std::exp(static_cast<double>(logits[order[i]] - logits[order[0]]) / sampler.temperature);
  }
  const double nucleus = sampler.top_p * sum;
  double before = 0, left = 0;
  for (const size_t token : order) {
    const double mass = p[token];
    if (before >= nucleus || mass < sampler.min_p) p[token] = 0;
    before += mass;
    left += p[token];
  }
  for (double& x : p) x /= left;
  return p;
}

// A text in which the next token depends on the one before it and on the position; and a drafter
// that knows it more or less.
class Language {
 public:
  Language(uint64_t seed, float width, float error) {
    Rng rng(seed);
    for (auto* table : {&target_, &draft_}) {
      table->resize(size_t{kAnswer + kDrafts + 1} * kVocab);
    }
    for (size_t i = 0; i < target_.size(); ++i) {
      for (int32_t v = 0; v < kVocab; ++v) {
        target_[i].push_back(width * rng.NextNormal());
        draft_[i].push_back(target_[i].back() + error * rng.NextNormal());
      }
    }
  }
  // Of the token at position `at` behind `before`.
  const std::vector<float>& Target(int32_t at, TokenId before) const {
    return target_[Index(at, before)];
  }
  const std::vector<float>& Draft(int32_t at, TokenId before) const {
    return draft_[Index(at, before)];
  }

 private:
  static size_t Index(int32_t at, TokenId before) {
    return static_cast<size_t>(at * kVocab + before);
  }
  std::vector<std::vector<float>> target_, draft_;
};

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

// How far the answers are from the language's own distribution, in standard deviations about: of
// the pairs of neighbours (0, 1) and (1, 2), the worse. Wilson and Hilferty's cube root makes a
// normal variable of chi-square; cells that expect fewer than 10 answers are taken together.
double Deviation(const Language& language, const Sampler& sampler,
                 const std::vector<Answer>& answers) {
  double worst = -1e9;
  Distribution first = {};  // of the pair's first token
  for (size_t at = 0; at + 1 < kAnswer; ++at) {
    std::array<Distribution, kVocab> pairs = {}, seen = {};
    if (at == 0) first = Probabilities(language.Target(0, kPrompt), sampler);
    Distribution second = {};
    for (size_t a = 0; a < kVocab; ++a) {
      const Distribution next = Probabilities(
          language.Target(static_cast<int32_t>(at) + 1, static_cast<TokenId>(a)), sampler);
      for (size_t b = 0; b < kVocab; ++b) second[b] += pairs[a][b] = first[a] * next[b];
    }
    for (const Answer& answer : answers) {
      ++seen[static_cast<size_t>(answer[at])][static_cast<size_t>(answer[at + 1])];
    }
    double chi = 0, cells = -1, rare = 0, rare_seen = 0;
    const auto add = [&](double expected, double count) {
      chi += (count - expected) * (count - expected) / expected;
      ++cells;
    };
    for (size_t a = 0; a < kVocab; ++a) {
      for (size_t b = 0; b < kVocab; ++b) {
        const double expected = pairs[a][b] * static_cast<double>(answers.size());
        if (expected == 0 && seen[a][b] > 0) return 1e9;  // what cannot come came
        if (expected >= 10) {
          add(expected, seen[a][b]);
        } else {
          rare += expected;
          rare_seen += seen[a][b];
        }
      }
    }
    if (rare > 0) add(rare, rare_seen);
    const double spread = 2 / (9 * cells);
    worst = std::max(worst, (std::cbrt(chi / cells) - (1 - spread)) / std::sqrt(spread));
    first = second;
  }
  return worst;
}

struct Case {
  Language language;
  Sampler sampler;
};
Case RandomCase(uint64_t seed) {
  Rng rng(seed);
  const float width = 0.5f + 1.5f * rng.NextFloat();
  const float error = 0.2f + rng.NextFloat();
  Sampler sampler;
  sampler.temperature = 0.4f + 1.4f * rng.NextFloat();
  if (rng.Below(3) == 0) sampler.top_k = rng.Between(4, 12);
  if (rng.Below(3) == 0) sampler.top_p = 0.6f + 0.39f * rng.NextFloat();
  if (rng.Below(3) == 0) sampler.min_p = 0.15f * rng.NextFloat();
  return {Language(seed, width, error), sampler};
}

constexpr Drafter kDrafters[] = {Drafter::kSameNumbers, Drafter::kOwnNumbers, Drafter::kLikeliest};
// Seeds are given, so the outcome is the same on every run; by chance so much comes once in 10⁵.
constexpr double kSuspicious = 4.3;

TEST(VerifyDistribution, IsThatOfPlainSamplingWhateverTheDrafterAndTheSampler) {
  constexpr uint64_t kAnswers = 10000;
  for (uint64_t seed = 1; seed <= 16; ++seed) {
    const Case tested = RandomCase(seed);
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
    const Case tested = RandomCase(seed);
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
