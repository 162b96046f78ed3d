#include "spec/ngram_index.h"

#include <algorithm>

#include "base/check.h"

namespace hayate::spec {
namespace {

constexpr size_t kMinBuckets = 64;

// Tokens that end alike at places a and b, at most kMaxMatch.
int32_t CommonEnd(std::span<const TokenId> text, int32_t a, int32_t b) {
  const int32_t limit = std::min({NgramIndex::kMaxMatch, a + 1, b + 1});
  int32_t length = 0;
  while (length < limit &&
         text[static_cast<size_t>(a - length)] == text[static_cast<size_t>(b - length)]) {
    ++length;
  }
  return length;
}

}  // namespace

size_t NgramIndex::Chain::Bucket(std::span<const TokenId> text, int32_t place) const {
  uint64_t hash = 0;
  for (int32_t i = 0; i < gram; ++i) {
    hash = (hash + static_cast<uint64_t>(text[static_cast<size_t>(place - i)]) + 1) *
           0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  }
  return hash & (heads.size() - 1);
}

void NgramIndex::Chain::Insert(std::span<const TokenId> text, int32_t place) {
  previous.push_back(-1);
  if (previous.size() > heads.size()) return Grow(text);
  if (place + 1 < gram) return;
  int32_t& head = heads[Bucket(text, place)];
  previous[static_cast<size_t>(place)] = head;
  head = place;
}

void NgramIndex::Chain::Grow(std::span<const TokenId> text) {
  heads.assign(std::max(kMinBuckets, 2 * heads.size()), -1);
  for (int32_t place = gram - 1; place < static_cast<int32_t>(previous.size()); ++place) {
    int32_t& head = heads[Bucket(text, place)];
    previous[static_cast<size_t>(place)] = head;
    head = place;
  }
}

void NgramIndex::Insert(std::span<const TokenId> text) {
  for (Chain& chain : chains_) chain.Insert(text, size_);
  ++size_;
}

void NgramIndex::Fill(std::span<const TokenId> text, int32_t end) {
  CHECK_LE(static_cast<size_t>(end), text.size());
  while (size_ < end) Insert(text);
  next_ = -1;
  match_length_ = 0;
}

NgramIndex::Outcome NgramIndex::Push(std::span<const TokenId> text) {
  CHECK_LT(static_cast<size_t>(size_), text.size());
  Outcome outcome;
  if (has_match()) {
    outcome = {.guessed = true,
               .hit = text[static_cast<size_t>(next_)] == text[static_cast<size_t>(size_)],
               .match_length = match_length_};
    match_length_ = outcome.hit ? match_length_ + 1 : 0;
    ++next_;
  }
  Search(text, size_);
  Insert(text);
  return outcome;
}

// The longest match of the text's end wins, the newest of equally long ones, the one that goes on
// before all others.
void NgramIndex::Search(std::span<const TokenId> text, int32_t place) {
  for (const Chain& chain : chains_) {
    if (match_length_ >= kMaxMatch) return;
    if (place + 1 < chain.gram || chain.heads.empty()) continue;
    int32_t candidate = chain.heads[chain.Bucket(text, place)];
    for (int32_t i = 0; i < kMaxCandidates && candidate >= 0; ++i) {
      const int32_t length = CommonEnd(text, candidate, place);
      if (length >= chain.gram && length > match_length_) {
        match_length_ = length;
        next_ = candidate + 1;
      }
      candidate = chain.previous[static_cast<size_t>(candidate)];
    }
    if (match_length_ >= chain.gram) return;
  }
}

void NgramIndex::Guess(std::span<const TokenId> text, int32_t count,
                       std::vector<TokenId>& guesses) const {
  CHECK(has_match());
  const size_t first = guesses.size();
  for (int32_t i = 0; i < count; ++i) {
    const int32_t place = next_ + i;
    guesses.push_back(place < size_ ? text[static_cast<size_t>(place)]
                                    : guesses[first + static_cast<size_t>(place - size_)]);
  }
}

}  // namespace hayate::spec
