#include "spec/ngram_index.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace hayate::spec {
namespace {

using Text = std::vector<TokenId>;

NgramIndex IndexOf(const Text& text) {
  NgramIndex index;
  for (size_t i = 0; i < text.size(); ++i) index.Push(std::span(text).first(i + 1));
  return index;
}

Text Guess(const NgramIndex& index, const Text& text, int32_t count) {
  Text guesses;
  if (index.has_match()) index.Guess(text, count, guesses);
  return guesses;
}

TEST(NgramIndex, GuessesWhatFollowedBefore) {
  const Text text = {1, 2, 3, 4, 5, 6, 9, 2, 3, 4};
  const NgramIndex index = IndexOf(text);
  EXPECT_EQ(index.match_length(), 3);
  EXPECT_EQ(Guess(index, text, 3), (Text{5, 6, 9}));
}

TEST(NgramIndex, ALonePairMatchesAndASingleTokenDoesNot) {
  EXPECT_FALSE(IndexOf({7, 1, 8, 1}).has_match());
  EXPECT_EQ(IndexOf({7, 1, 8, 7, 1}).match_length(), 2);
}

TEST(NgramIndex, PrefersTheLongestMatchAndOfEqualOnesTheNewest) {
  const Text longest = {9, 1, 2, 3, 50, 8, 1, 2, 3, 60, 9, 1, 2, 3};
  EXPECT_EQ(Guess(IndexOf(longest), longest, 1), (Text{50}));
  const Text newest = {1, 2, 3, 50, 1, 2, 3, 60, 1, 2, 3};
  // The match with the newest place was found first and goes on.
  EXPECT_EQ(Guess(IndexOf(newest), newest, 1), (Text{60}));
}

TEST(NgramIndex, APeriodGoesOnBeyondTheEndOfTheText) {
  const Text text = {1, 2, 3, 1, 2, 3, 1, 2};
  EXPECT_EQ(Guess(IndexOf(text), text, 8), (Text{3, 1, 2, 3, 1, 2, 3, 1}));
}

TEST(NgramIndex, GoesOnBehindAChangedToken) {
  const Text text = {1, 2, 3, 4, 5, 6, 7, 20, 1, 2, 3, 4, 99};
  const NgramIndex index = IndexOf(text);
  EXPECT_EQ(index.match_length(), 0);
  EXPECT_EQ(Guess(index, text, 2), (Text{6, 7}));
}

TEST(NgramIndex, SaysWhetherItsGuessesWereRight) {
  const Text text = {1, 2, 3, 4, 1, 2, 3, 9};
  NgramIndex index;
  index.Fill(text, 5);
  EXPECT_FALSE(index.Push(text).guessed);  // 2: nothing was known yet
  const NgramIndex::Outcome right = index.Push(text);
  EXPECT_TRUE(right.guessed && right.hit);
  EXPECT_EQ(right.match_length, 2);
  const NgramIndex::Outcome wrong = index.Push(text);
  EXPECT_TRUE(wrong.guessed && !wrong.hit);
  EXPECT_EQ(wrong.match_length, 3);
}

// The length of the longest earlier place that ends like the text, by trying all.
int32_t LongestMatch(const Text& text) {
  int32_t best = 0;
  const auto size = static_cast<int32_t>(text.size());
  for (int32_t place = 0; place + 1 < size; ++place) {
    int32_t length = 0;
    while (length <= place && text[static_cast<size_t>(place - length)] ==
                                  text[static_cast<size_t>(size - 1 - length)]) {
      ++length;
    }
    best = std::max(best, length);
  }
  return best;
}

TEST(NgramIndex, FindsTheMatchesThatALookAtEveryPlaceFinds) {
  Rng rng(5);
  int64_t found = 0, possible = 0;
  for (int trial = 0; trial < 40; ++trial) {
    const auto vocab = static_cast<uint32_t>(rng.Between(3, 200));
    Text text;
    NgramIndex index;
    for (int i = 0; i < 300; ++i) {
      const bool copies = text.size() > 30 && rng.Below(4) != 0;
      text.push_back(copies ? text[text.size() - 23] : static_cast<TokenId>(rng.Below(vocab)));
      index.Push(text);
      const int32_t longest = LongestMatch(text);
      ASSERT_LE(index.match_length(), std::max(longest, 0));
      if (longest < NgramIndex::kShortGram) continue;
      ++possible;
      found += index.match_length() >= std::min(longest, NgramIndex::kLongGram);
      // What it claims is true.
      ASSERT_TRUE(index.match_length() == 0 || index.has_match());
    }
  }
  // The chains are followed over a few places alone.
  EXPECT_GT(static_cast<double>(found), 0.95 * static_cast<double>(possible));
}

TEST(NgramIndex, GivesTheSameHoweverTheTextWasTakenIn) {
  Rng rng(6);
  for (int trial = 0; trial < 100; ++trial) {
    Text text;
    for (int i = 0; i < 400; ++i) text.push_back(static_cast<TokenId>(rng.Below(5)));
    NgramIndex filled;
    filled.Fill(text, 100);
    filled.Fill(text, 399);
    filled.Push(text);
    NgramIndex at_once;
    at_once.Fill(text, 399);
    at_once.Push(text);
    ASSERT_EQ(filled.match_length(), at_once.match_length());
    ASSERT_EQ(Guess(filled, text, 12), Guess(at_once, text, 12));
  }
}

}  // namespace
}  // namespace hayate::spec
