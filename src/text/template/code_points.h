#pragma once
// Text as Python sees it, a sequence of code points, over UTF-8 storage. Bytes that are no valid
// UTF-8 count as one code point each, so that every text can be walked.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hayate::text::jinja {

struct CodePoint {
  char32_t value;
  size_t length;  // bytes
};

// The code point at byte `offset` < text.size().
CodePoint CodePointAt(std::string_view text, size_t offset);
void AppendUtf8(std::string& out, char32_t code_point);

// Code points in `text`.
size_t Length(std::string_view text);
// Byte offset of the code point with this index; text.size() at or past the end.
size_t ByteOffset(std::string_view text, size_t index);
std::vector<std::string_view> SplitCodePoints(std::string_view text);

// str.isspace() of one code point; also what `\s` of Python's re means.
bool IsSpace(char32_t code_point);
// False where repr() writes an escape.
bool IsPrintable(char32_t code_point);
bool IsAlphabetic(char32_t code_point);
bool IsDigit(char32_t code_point);
bool IsUpper(char32_t code_point);
bool IsLower(char32_t code_point);

std::string_view StripLeft(std::string_view text);
std::string_view StripRight(std::string_view text);
// The same for the characters of a set.
std::string_view StripLeft(std::string_view text, std::string_view characters);
std::string_view StripRight(std::string_view text, std::string_view characters);

// One-to-one case mappings, and ß → SS.
std::string Upper(std::string_view text);
std::string Lower(std::string_view text);
// First character upper, the rest lower.
std::string Capitalize(std::string_view text);
// str.title(): a letter after a non-letter is upper case, all others lower.
std::string TitleCase(std::string_view text);

}  // namespace hayate::text::jinja
