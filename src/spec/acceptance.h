#pragma once
// How often guesses are right, learned as the texts grow: by the length of the match that they came
// from, or by which draft of the row they were.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace hayate::spec {

// By the length of the match that a guess came from. Short matches are chance until they were not:
// every guess is judged, verified or not, so a text that repeats itself is known after a few tokens
// and prose pays for no hope. Long ones seldom are.
class MatchAcceptance {
 public:
  float Rate(int32_t match_length) const {
    const Count& count = counts_[ClassOf(match_length)];
    return count.hits / count.tries;
  }
  void Observe(int32_t match_length, bool hit) {
    Count& count = counts_[ClassOf(match_length)];
    count.hits += (hit ? 1.0f : 0.0f) - kAge * count.hits;
    count.tries += 1.0f - kAge * count.tries;
  }

 private:
  struct Count {
    float hits, tries;
  };
  static constexpr float kAge = 1.0f / 32;
  // What is assumed, with the weight of two guesses.
  static constexpr Count Assumed(float rate) { return {2.0f * rate, 2.0f}; }
  // 0, 1 – 2, 3, 4 – 5, 6 – 8, 9 – 15, 16 and more.
  static size_t ClassOf(int32_t match_length) {
    constexpr std::array<int32_t, 6> kUpTo = {0, 2, 3, 5, 8, 15};
    size_t index = 0;
    while (index < kUpTo.size() && match_length > kUpTo[index]) ++index;
    return index;
  }
  std::array<Count, 7> counts_ = {Assumed(0.05f), Assumed(0.05f), Assumed(0.15f), Assumed(0.35f),
                                  Assumed(0.5f),  Assumed(0.7f),  Assumed(0.8f)};
};

// Of text that a grammar forces: the chance that the model spells on as drafted.
class SpellingAcceptance {
 public:
  float Rate() const { return rate_; }
  // Of num_drafts such drafts of a row the first num_accepted stood.
  void Observe(int32_t num_drafts, int32_t num_accepted) {
    for (int32_t i = 0; i < num_drafts && i <= num_accepted; ++i) {
      rate_ += kStep * ((i < num_accepted ? 1.0f : 0.0f) - rate_);
    }
  }

 private:
  static constexpr float kStep = 0.125f;
  float rate_ = 0.9f;
};

// By place in the row, over all sequences: the chance that draft i stands when those before it do.
// Places that were tried little are judged by all of them.
class PlaceAcceptance {
 public:
  static constexpr int32_t kPlaces = 16;
  float Rate(int32_t i) const {
    const Count& place = places_[ClassOf(i)];
    const float overall = (all_.hits + kWeight * kPrior) / (all_.tries + kWeight);
    return (place.hits + kWeight * overall) / (place.tries + kWeight);
  }
  void Observe(int32_t i, bool hit) {
    for (Count* count : {&places_[ClassOf(i)], &all_}) {
      count->hits += (hit ? 1.0f : 0.0f) - kAge * count->hits;
      count->tries += 1.0f - kAge * count->tries;
    }
  }

 private:
  struct Count {
    float hits = 0.0f, tries = 0.0f;
  };
  // Hope: what is worth nothing is soon known, what is never tried is not.
  static constexpr float kPrior = 0.95f;
  static constexpr float kWeight = 2.0f;  // of what is assumed, in drafts
  static constexpr float kAge = 1.0f / 512;
  static size_t ClassOf(int32_t i) { return static_cast<size_t>(i < kPlaces ? i : kPlaces - 1); }
  std::array<Count, kPlaces> places_ = {};
  Count all_;
};

// How much better or worse one sequence's drafts are than all sequences' at their places.
class SequenceAcceptance {
 public:
  float Rate(const PlaceAcceptance& all, int32_t i) const {
    const float rate = all.Rate(i) * (hits_ + kWeight) / (expected_ + kWeight);
    // Whatever the others are like, each is tried once, and again after a while without drafts.
    const float least = i == 0 && tries_ < kFresh ? kTry : 0.0f;
    return std::clamp(rate, least, kMost);
  }
  // Of a row of num_drafts drafts the first num_accepted stood.
  void Observe(PlaceAcceptance& all, int32_t num_drafts, int32_t num_accepted) {
    for (int32_t i = 0; i < num_drafts && i <= num_accepted; ++i) {
      const bool hit = i < num_accepted;
      Age(kAge);
      tries_ += 1.0f;
      hits_ += hit ? 1.0f : 0.0f;
      expected_ += all.Rate(i);
      all.Observe(i, hit);
    }
  }
  // Nothing was tried: what is known grows old.
  void Forget() { Age(kForget); }

 private:
  static constexpr float kWeight = 16.0f;  // of being like the others, in drafts that stand
  static constexpr float kAge = 1.0f / 64;
  static constexpr float kForget = 1.0f / 256;
  static constexpr float kFresh = 0.5f;
  static constexpr float kTry = 0.95f;
  static constexpr float kMost = 0.98f;
  void Age(float share) {
    tries_ -= share * tries_;
    hits_ -= share * hits_;
    expected_ -= share * expected_;
  }
  float tries_ = 0.0f, hits_ = 0.0f, expected_ = 0.0f;
};

}  // namespace hayate::spec
