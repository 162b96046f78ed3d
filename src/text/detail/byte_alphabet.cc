#include "text/detail/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "text/detail/utf8.h"

namespace hayate::text {
namespace {

constexpr uint32_t kAlphabetEnd = 0x100 + 68;

constexpr bool StandsForItself(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// Byte of each character, or -1.
constexpr std::array<int16_t, kAlphabetEnd> kByteOfCharacter = [] {
  std::array<int16_t, kAlphabetEnd> table{};
  table.fill(-1);
  uint32_t next = 0x100;
  for (uint32_t byte = 0; byte < 0x100; ++byte) {
    table[StandsForItself(byte) ? byte : next++] = static_cast<int16_t>(byte);
  }
  return table;
}();

}  // namespace

std::optional<std::string> BytesOfSpelling(std::string_view spelling) {
  std::string bytes;
  for (size_t i = 0; i < spelling.size();
       i += Utf8Length(static_cast<unsigned char>(spelling[i]))) {
    const uint32_t character = CodePointAt(spelling, i);
    if (character >= kAlphabetEnd || kByteOfCharacter[character] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteOfCharacter[character]);
  }
  return bytes;
}

}  // namespace hayate::text
