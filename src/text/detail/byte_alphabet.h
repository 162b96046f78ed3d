#pragma once
// The GPT-2 byte alphabet: byte-level vocabularies spell each byte as one printable character.
// Printable Latin-1 stands for itself, the other 68 bytes take U+0100 onwards in order (" " is
// "Ġ").

#include <optional>
#include <string>
#include <string_view>

namespace hayate::text {

// The bytes that `spelling` stands for; none when a character is outside the alphabet.
std::optional<std::string> BytesOfSpelling(std::string_view spelling);

}  // namespace hayate::text
