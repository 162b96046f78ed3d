#include "text/detail/added_token_matcher.h"

#include <algorithm>

#include "text/detail/token_table.h"
#include "text/detail/utf8.h"

namespace hayate::text {
namespace {

bool TouchesWord(std::string_view text, size_t begin, size_t end) {
  const bool on_left =
      begin > 0 && IsWordCharacter(CodePointAt(text, PreviousCharacter(text, begin)));
  const bool on_right = end < text.size() && IsWordCharacter(CodePointAt(text, end));
  return on_left || on_right;
}

// The start of the white space that ends at `end`, not before `limit`.
size_t SpaceBefore(std::string_view text, size_t end, size_t limit) {
  while (end > limit) {
    const size_t last = PreviousCharacter(text, end);
    if (!IsWhiteSpace(CodePointAt(text, last))) break;
    end = last;
  }
  return std::max(end, limit);
}

size_t SpaceAfter(std::string_view text, size_t begin) {
  while (begin < text.size() && IsWhiteSpace(CodePointAt(text, begin))) {
    begin += Utf8Length(static_cast<unsigned char>(text[begin]));
  }
  return begin;
}

}  // namespace

void AddedTokenMatcher::Add(std::string_view pattern, const AddedToken& token) {
  if (pattern.empty()) return;
  begins_token_[static_cast<unsigned char>(pattern[0])] = true;
  uint32_t node = 0;
  for (const char byte : pattern) {
    uint32_t child = Child(node, byte);
    if (child == 0) {
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.next_sibling = nodes_[node].first_child, .byte = byte});
      nodes_[node].first_child = child;
    }
    node = child;
  }
  nodes_[node].token_index = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
}

uint32_t AddedTokenMatcher::Child(uint32_t node, char byte) const {
  uint32_t child = nodes_[node].first_child;
  while (child != 0 && nodes_[child].byte != byte) child = nodes_[child].next_sibling;
  return child;
}

int32_t AddedTokenMatcher::LongestAt(std::string_view text, size_t begin, size_t& end) const {
  int32_t longest = -1;
  uint32_t node = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    node = Child(node, text[i]);
    if (node == 0) break;
    if (nodes_[node].token_index >= 0) {
      longest = nodes_[node].token_index;
      end = i + 1;
    }
  }
  return longest;
}

std::vector<AddedTokenMatcher::Segment> AddedTokenMatcher::Split(
    std::string_view text, SpecialTokens special_tokens) const {
  std::vector<Segment> segments;
  size_t done = 0;
  for (size_t i = 0; i < text.size();) {
    size_t match_end = 0;
    const int32_t index =
        begins_token_[static_cast<unsigned char>(text[i])] ? LongestAt(text, i, match_end) : -1;
    if (index < 0) {
      ++i;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(index)];
    size_t begin = i, end = match_end;
    i = match_end;  // the search goes on behind the match even if it does not count
    if (token.special && special_tokens == SpecialTokens::kAsText) continue;
    if (token.single_word && TouchesWord(text, begin, end)) continue;
    if (token.lstrip) begin = SpaceBefore(text, begin, done);
    if (token.rstrip) end = SpaceAfter(text, end);
    if (done < begin) segments.push_back({done, begin, kNoToken});
    segments.push_back({begin, end, token.id});
    done = end;
    i = std::max(i, end);
  }
  if (done < text.size()) segments.push_back({done, text.size(), kNoToken});
  return segments;
}

}  // namespace hayate::text
