#include "grammar/detail/token_lengths.h"

#include <algorithm>
#include <limits>
#include <string_view>

namespace hayate::grammar::detail {
namespace {

constexpr int32_t kUnbounded = std::numeric_limits<int32_t>::max();

void SetBit(std::span<uint32_t> bits, int32_t id) {
  bits[static_cast<size_t>(id) / 32] |= uint32_t{1} << (id % 32);
}

void ClearBit(std::span<uint32_t> bits, int32_t id) {
  bits[static_cast<size_t>(id) / 32] &= ~(uint32_t{1} << (id % 32));
}

TokenLengths::Span Measure(std::string_view bytes, bool escaped) {
  int32_t characters = 0;
  TokenLengths::Span span;
  for (size_t i = 0; i < bytes.size() && !span.closes; ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    if (escaped) {
      escaped = false;
    } else if (byte == '"') {
      span.closes = true;
      span.quotes_follow = bytes.find('"', i + 1) != std::string_view::npos;
    } else if ((byte & 0xC0) != 0x80) {
      ++characters;
      escaped = byte == '\\';
    }
  }
  span.characters = static_cast<uint16_t>(std::min(characters, 0xFFFF));
  return span;
}

}  // namespace

TokenLengths::TokenLengths(std::span<const std::pair<int32_t, std::string>> tokens, int32_t size)
    : all_((static_cast<size_t>(size) + 31) / 32) {
  for (std::vector<Span>& spans : spans_) spans.resize(static_cast<size_t>(size));
  within_.resize(all_.size() * kRows);
  std::vector<std::pair<int32_t, int32_t>> opened;  // characters, id
  for (const auto& [id, bytes] : tokens) {
    if (bytes.empty()) continue;
    SetBit(all_, id);
    Add(StringPlace::kPlain, id, bytes);
    Add(StringPlace::kEscaped, id, bytes);
    const size_t quote = bytes.find('"');
    if (quote == std::string::npos) continue;
    const Span rest = Measure(std::string_view(bytes).substr(quote + 1), false);
    const bool second = bytes.find('"', quote + 1) != std::string::npos;
    opened.emplace_back(second ? kUnbounded : rest.characters, id);
  }
  std::sort(opened.rbegin(), opened.rend());
  for (const auto& [characters, id] : opened) {
    opened_.push_back(characters);
    openers_.push_back(id);
  }
}

void TokenLengths::Add(StringPlace place, int32_t id, const std::string& bytes) {
  const Span span = Measure(bytes, place == StringPlace::kEscaped);
  spans_[static_cast<size_t>(place)][static_cast<size_t>(id)] = span;
  longest_ = std::max<int32_t>(longest_, span.characters);
  if (span.closes) closers_[static_cast<size_t>(place)].push_back(id);
  if (place != StringPlace::kPlain) return;
  for (int32_t row = span.closes ? 0 : span.characters; row < kRows; ++row) {
    SetBit(std::span(within_).subspan(static_cast<size_t>(row) * all_.size(), all_.size()), id);
  }
  if (!span.closes && span.characters >= kRows) long_.push_back(id);
}

void TokenLengths::KeepWithin(StringPlace place, int32_t room, std::span<uint32_t> bits) const {
  if (room >= longest_) return;
  if (place == StringPlace::kEscaped) {
    for (size_t id = 0; id < spans_[1].size(); ++id) {
      const Span& span = spans_[1][id];
      if (!span.closes && span.characters > room) ClearBit(bits, static_cast<int32_t>(id));
    }
    return;
  }
  if (room >= kRows) {
    for (const int32_t id : long_) {
      if (SpanOf(place, id).characters > room) ClearBit(bits, id);
    }
    return;
  }
  const uint32_t* row = within_.data() + static_cast<size_t>(room) * all_.size();
  for (size_t word = 0; word < all_.size(); ++word) bits[word] &= row[word];
}

std::span<const int32_t> TokenLengths::Openers(int32_t room) const {
  const auto end = std::partition_point(opened_.begin(), opened_.end(),
                                        [room](int32_t characters) { return characters > room; });
  return std::span(openers_).first(static_cast<size_t>(end - opened_.begin()));
}

}  // namespace hayate::grammar::detail
