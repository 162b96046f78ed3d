#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace hayate::weights::detail {

// The first `max_bytes` bytes of UTF-8 text or fewer, so that no code point is cut.
inline std::string_view CutUtf8(std::string_view text, size_t max_bytes) {
  size_t length = std::min(text.size(), max_bytes);
  while (length < text.size() && length > 0 && (text[length] & 0xC0) == 0x80) --length;
  return text.substr(0, length);
}

}  // namespace hayate::weights::detail
