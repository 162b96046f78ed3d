#pragma once
// Code points of UTF-8 text that is known to be valid.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hayate::text {

// Bytes of the character whose first byte is `lead`.
inline size_t Utf8Length(unsigned char lead) {
  return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

inline bool IsUtf8Continuation(unsigned char byte) { return (byte & 0xC0) == 0x80; }

// The character at `offset`, which is the start of one.
inline uint32_t CodePointAt(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[offset + i]); };
  switch (Utf8Length(byte(0))) {
    case 1:
      return byte(0);
    case 2:
      return (byte(0) & 0x1Fu) << 6 | (byte(1) & 0x3Fu);
    case 3:
      return (byte(0) & 0x0Fu) << 12 | (byte(1) & 0x3Fu) << 6 | (byte(2) & 0x3Fu);
    default:
      return (byte(0) & 0x07u) << 18 | (byte(1) & 0x3Fu) << 12 | (byte(2) & 0x3Fu) << 6 |
             (byte(3) & 0x3Fu);
  }
}

// Start of the character that ends at `end`; end > 0.
inline size_t PreviousCharacter(std::string_view text, size_t end) {
  do --end;
  while (IsUtf8Continuation(static_cast<unsigned char>(text[end])));
  return end;
}

void AppendUtf8(uint32_t code_point, std::string& out);

// Offset of the first byte that is not UTF-8, or npos.
size_t FindInvalidUtf8(std::string_view text);

// Unicode's White_Space property.
bool IsWhiteSpace(uint32_t code_point);
// Letters, marks, decimal digits, connectors and joiners: what \w means to the reference library.
bool IsWordCharacter(uint32_t code_point);

}  // namespace hayate::text
