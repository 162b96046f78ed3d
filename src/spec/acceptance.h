#pragma once
// How often the guesses of one sequence are right, learned as its text grows: a moving average per
// class of guesses (how long a match they came from, or which draft of the row they were).

#include <array>
#include <cstddef>
#include <cstdint>

namespace hayate::spec {

// By the length of the match that a guess came from.
class MatchAcceptance {
 public:
  float Rate(int32_t match_length) const { return rates_[ClassOf(match_length)]; }
  void Observe(int32_t match_length, bool hit) {
    float& rate = rates_[ClassOf(match_length)];
    rate += kStep * ((hit ? 1.0f : 0.0f) - rate);
  }

 private:
  static constexpr float kStep = 0.125f;
  // 0, 1 – 2, 3, 4 – 5, 6 – 8, 9 – 15, 16 and more.
  static size_t ClassOf(int32_t match_length) {
    constexpr std::array<int32_t, 6> kUpTo = {0, 2, 3, 5, 8, 15};
    size_t index = 0;
    while (index < kUpTo.size() && match_length > kUpTo[index]) ++index;
    return index;
  }
  std::array<float, 7> rates_ = {0.3f, 0.25f, 0.35f, 0.5f, 0.6f, 0.7f, 0.8f};
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

// By place in the row: the chance that draft i stands when those before it do.
class PlaceAcceptance {
 public:
  static constexpr int32_t kPlaces = 16;
  float Rate(int32_t i) const { return rates_[ClassOf(i)]; }
  // Of a row of num_drafts drafts the first num_accepted stood.
  void Observe(int32_t num_drafts, int32_t num_accepted) {
    for (int32_t i = 0; i < num_drafts && i <= num_accepted; ++i) {
      float& rate = rates_[ClassOf(i)];
      rate += kStep * ((i < num_accepted ? 1.0f : 0.0f) - rate);
    }
  }
  // Nothing was tried: what is known grows old, so that a sequence is tried again some time.
  void Forget() {
    for (float& rate : rates_) rate += kForget * (kPrior - rate);
  }

 private:
  static constexpr float kStep = 0.0625f;
  static constexpr float kForget = 1.0f / 256;
  static constexpr float kPrior = 0.7f;
  static size_t ClassOf(int32_t i) { return static_cast<size_t>(i < kPlaces ? i : kPlaces - 1); }
  static constexpr std::array<float, kPlaces> Priors() {
    std::array<float, kPlaces> rates = {};
    for (float& rate : rates) rate = kPrior;
    return rates;
  }
  std::array<float, kPlaces> rates_ = Priors();
};

}  // namespace hayate::spec
