#pragma once
// Finds added tokens in text: leftmost first, then longest. Immutable; shared by all threads.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace hayate::text {

class AddedTokenMatcher {
 public:
  // A stretch of ordinary text, or an added token with the white space it swallowed.
  struct Segment {
    size_t begin;
    size_t end;
    int32_t id;  // kNoToken for text
  };

  // Adds one token, to be found where `pattern` (its content, normalised if it asks for that)
  // stands.
  void Add(std::string_view pattern, const AddedToken& token);

  bool empty() const { return tokens_.empty(); }
  // Covers `text` without gaps. With SpecialTokens::kAsText special tokens are ordinary text.
  std::vector<Segment> Split(std::string_view text, SpecialTokens special_tokens) const;

 private:
  // A byte trie with sibling lists. Node 0 is the root.
  struct Node {
    uint32_t first_child = 0;
    uint32_t next_sibling = 0;
    int32_t token_index = -1;
    char byte = 0;
  };

  uint32_t Child(uint32_t node, char byte) const;
  // The longest token that begins exactly at `begin`; an index of tokens_ or -1.
  int32_t LongestAt(std::string_view text, size_t begin, size_t& end) const;

  std::vector<Node> nodes_ = {Node{}};
  std::vector<AddedToken> tokens_;
  std::array<bool, 256> begins_token_{};
};

}  // namespace hayate::text
