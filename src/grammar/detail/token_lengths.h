#pragma once
// What each token of a vocabulary adds to a JSON string, in characters. Immutable.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace hayate::grammar::detail {

// Where in a string a token begins: between two characters or inside one of several bytes, or right
// behind a backslash.
enum class StringPlace : uint8_t { kPlain, kEscaped };

class TokenLengths {
 public:
  // Of a token that goes on with a string. A character counts where it begins.
  struct Span {
    uint16_t characters = 0;  // until the string is closed, or the token ends
    bool closes = false;
    bool quotes_follow = false;  // behind the closing quote
  };

  // `tokens`: ids and bytes, no id from `size` on.
  TokenLengths(std::span<const std::pair<int32_t, std::string>> tokens, int32_t size);

  // Characters of the longest token.
  int32_t longest() const { return longest_; }
  // Every token, a bit each.
  std::span<const uint32_t> all() const { return all_; }
  const Span& SpanOf(StringPlace place, int32_t id) const {
    return spans_[static_cast<size_t>(place)][static_cast<size_t>(id)];
  }
  // The tokens that close a string. Ids.
  std::span<const int32_t> Closers(StringPlace place) const {
    return closers_[static_cast<size_t>(place)];
  }
  // Clears the tokens that add more than `room` ≥ 0 characters and do not close the string.
  void KeepWithin(StringPlace place, int32_t room, std::span<uint32_t> bits) const;
  // The tokens that may open and close a string, or that open one and put more than `room`
  // characters into it. Ids.
  std::span<const int32_t> Openers(int32_t room) const;

 private:
  static constexpr int32_t kRows = 32;

  void Add(StringPlace place, int32_t id, const std::string& bytes);

  int32_t longest_ = 0;
  std::vector<uint32_t> all_;
  std::vector<Span> spans_[2];       // by place, by id
  std::vector<int32_t> closers_[2];  // by place
  // Row r, of all_.size() words: the tokens that close a string or add at most r characters.
  std::vector<uint32_t> within_;
  std::vector<int32_t> long_;  // ids of those that add kRows characters or more
  // Ids of the tokens with a quote, and the characters behind the first; where a second one
  // follows, more than any room. The most first.
  std::vector<int32_t> openers_;
  std::vector<int32_t> opened_;
};

}  // namespace hayate::grammar::detail
