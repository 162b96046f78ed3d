#pragma once
// A language of 16 tokens whose distribution is known, and how far answers are from it: for tests
// of draws through rows with drafts.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/rng.h"
#include "core/ids.h"

namespace hayate::exec::testing {

inline constexpr int32_t kVocab = 16;
inline constexpr int32_t kDrafts = 3;
inline constexpr int32_t kAnswer = 3;
inline constexpr TokenId kPrompt = 5;
using Answer = std::array<TokenId, kAnswer>;
using Distribution = std::array<double, kVocab>;

struct Sampler {
  float temperature = 1.0f;
  int32_t top_k = 0;
  float top_p = 1.0f;
  float min_p = 0.0f;
};

// The softmax of the logits as `sampler` cuts it, in double.
inline Distribution Probabilities(const std::vector<float>& logits, const Sampler& sampler) {
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

// How far the answers are from the language's own distribution, in standard deviations about: of
// the pairs of neighbours (0, 1) and (1, 2), the worse. Wilson and Hilferty's cube root makes a
// normal variable of chi-square; cells that expect fewer than 10 answers are taken together.
inline double Deviation(const Language& language, const Sampler& sampler,
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

struct LanguageCase {
  Language language;
  Sampler sampler;
};
inline LanguageCase RandomCase(uint64_t seed) {
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

// Seeds are given, so the outcome is the same on every run; by chance so much comes once in 10⁵.
inline constexpr double kSuspicious = 4.3;

}  // namespace hayate::exec::testing
