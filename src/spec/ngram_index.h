#pragma once
// Finds where the newest tokens of a text stood before, so that what followed them there can be
// guessed again. O(1) a token on average; 16 to 32 bytes a token. Owner: one thread.
//
//   text    … a b c d e … x b c d          the end "b c d" matches over 3 tokens;
//                     ↑                    "e" is the first guess
//
// Two hash chains, over grams of kLongGram and kShortGram tokens, lead from a gram to the places
// where it ended before, newest first. A match that goes on is kept without a search; one that
// breaks is kept too, one token further, with a length of 0: where only a value in a repeated
// record changed, the text goes on as it did.

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"

namespace hayate::spec {

class NgramIndex {
 public:
  static constexpr int32_t kLongGram = 4;
  static constexpr int32_t kShortGram = 2;
  // Longer matches are not told apart in a search.
  static constexpr int32_t kMaxMatch = 32;
  // Places that a search looks at, per chain.
  static constexpr int32_t kMaxCandidates = 8;

  // Whether the token that came was the one guessed.
  struct Outcome {
    bool guessed = false;      // there was a guess
    bool hit = false;          // it was right
    int32_t match_length = 0;  // of the match that it came from
  };

  // All calls take the whole text so far: it only grows. Takes in tokens [size(), end) without
  // looking for matches.
  void Fill(std::span<const TokenId> text, int32_t end);
  // Takes in the next token and looks where its end stood before.
  Outcome Push(std::span<const TokenId> text);

  int32_t size() const { return size_; }
  bool has_match() const { return next_ >= 0; }
  int32_t match_length() const { return match_length_; }
  // Appends `count` guesses of what follows the text, which must have a match. Where the earlier
  // place runs into the text's end, guesses continue from guesses: a period goes on.
  void Guess(std::span<const TokenId> text, int32_t count, std::vector<TokenId>& guesses) const;

 private:
  // The places where grams of one size ended, linked from newer to older.
  struct Chain {
    int32_t gram;
    std::vector<int32_t> heads = {};     // [power of 2] by hash; −1: none
    std::vector<int32_t> previous = {};  // [size of the text] by place
    size_t Bucket(std::span<const TokenId> text, int32_t place) const;
    void Insert(std::span<const TokenId> text, int32_t place);
    void Grow(std::span<const TokenId> text);
  };
  void Search(std::span<const TokenId> text, int32_t place);
  void Insert(std::span<const TokenId> text);

  std::array<Chain, 2> chains_ = {Chain{kLongGram}, Chain{kShortGram}};
  int32_t size_ = 0;
  int32_t next_ = -1;  // place of the first guess; −1: no match
  int32_t match_length_ = 0;
};

}  // namespace hayate::spec
