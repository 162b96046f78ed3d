#include "grammar/forced_token.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <string_view>

#include "grammar/token_bytes.h"

namespace hayate::grammar {

std::optional<int32_t> ForcedToken(const Vocabulary& vocabulary, std::span<const uint32_t> mask) {
  // The beginnings of a token are as many as it has bytes: a mask of more leaves a choice.
  constexpr size_t kMaxBeginnings = 64;
  std::array<int32_t, kMaxBeginnings> ids;
  size_t count = 0;
  for (size_t word = 0; word < mask.size(); ++word) {
    for (uint32_t bits = mask[word]; bits != 0; bits &= bits - 1) {
      if (count == kMaxBeginnings) return std::nullopt;
      ids[count++] = static_cast<int32_t>(word * 32) + std::countr_zero(bits);
    }
  }
  const std::span<const int32_t> allowed(ids.data(), count);
  int32_t longest = -1;
  std::string_view text;
  for (const int32_t id : allowed) {
    const std::string_view bytes = TokenBytes(vocabulary, id);
    if (bytes.empty()) return std::nullopt;  // the text may end here
    if (bytes.size() > text.size()) {
      longest = id;
      text = bytes;
    }
  }
  const bool forced = std::ranges::all_of(
      allowed, [&](int32_t id) { return text.starts_with(TokenBytes(vocabulary, id)); });
  return forced && longest >= 0 ? std::optional(longest) : std::nullopt;
}

}  // namespace hayate::grammar
