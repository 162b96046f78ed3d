#include "text/template/code_points.h"

#include <utf8proc.h>

#include <algorithm>

namespace hayate::text::jinja {
namespace {

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

utf8proc_category_t Category(char32_t code_point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code_point));
}

bool Contains(std::string_view characters, char32_t wanted) {
  for (size_t i = 0; i < characters.size();) {
    const CodePoint c = CodePointAt(characters, i);
    if (c.value == wanted) return true;
    i += c.length;
  }
  return false;
}

// Start of the last code point of a text that is not empty.
size_t LastStart(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && text.size() - start < 4 && (text[start] & 0xC0) == 0x80) --start;
  return start + CodePointAt(text, start).length == text.size() ? start : text.size() - 1;
}

template <typename Matches>
std::string_view StripLeftIf(std::string_view text, Matches matches) {
  while (!text.empty()) {
    const CodePoint c = CodePointAt(text, 0);
    if (!matches(c.value)) break;
    text.remove_prefix(c.length);
  }
  return text;
}

template <typename Matches>
std::string_view StripRightIf(std::string_view text, Matches matches) {
  while (!text.empty()) {
    const size_t start = LastStart(text);
    if (!matches(CodePointAt(text, start).value)) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

template <typename Map>
std::string MapCodePoints(std::string_view text, Map map) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = CodePointAt(text, i);
    map(out, c.value);
    i += c.length;
  }
  return out;
}

void AppendUpper(std::string& out, char32_t c) {
  if (c == U'ß') {
    out += "SS";
    return;
  }
  AppendUtf8(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void AppendTitle(std::string& out, char32_t c) {
  if (c == U'ß') {
    out += "Ss";
    return;
  }
  AppendUtf8(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

void AppendLower(std::string& out, char32_t c) {
  AppendUtf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

}  // namespace

CodePoint CodePointAt(std::string_view text, size_t offset) {
  const auto byte = static_cast<unsigned char>(text[offset]);
  if (byte < 0x80) return {byte, 1};
  utf8proc_int32_t value;
  const utf8proc_ssize_t length =
      utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data() + offset),
                       static_cast<utf8proc_ssize_t>(text.size() - offset), &value);
  if (length <= 0) return {0xFFFD, 1};
  return {static_cast<char32_t>(value), static_cast<size_t>(length)};
}

void AppendUtf8(std::string& out, char32_t code_point) {
  utf8proc_uint8_t buffer[4];
  const utf8proc_ssize_t length =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), buffer);
  out.append(reinterpret_cast<const char*>(buffer), static_cast<size_t>(length));
}

size_t Length(std::string_view text) {
  if (IsAscii(text)) return text.size();
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) i += CodePointAt(text, i).length;
  return count;
}

size_t ByteOffset(std::string_view text, size_t index) {
  size_t offset = 0;
  while (offset < text.size() && index > 0) {
    offset += CodePointAt(text, offset).length;
    --index;
  }
  return offset;
}

std::vector<std::string_view> SplitCodePoints(std::string_view text) {
  std::vector<std::string_view> parts;
  for (size_t i = 0; i < text.size();) {
    const size_t length = CodePointAt(text, i).length;
    parts.push_back(text.substr(i, length));
    i += length;
  }
  return parts;
}

bool IsSpace(char32_t c) {
  if (c < 0x80) return c == ' ' || (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x1F);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsPrintable(char32_t c) {
  switch (Category(c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    case UTF8PROC_CATEGORY_ZS:
      return c == ' ';
    default:
      return true;
  }
}

bool IsAlphabetic(char32_t c) {
  const utf8proc_category_t category = Category(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool IsDigit(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_ND; }

bool IsUpper(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LU; }

bool IsLower(char32_t c) { return Category(c) == UTF8PROC_CATEGORY_LL; }

std::string_view StripLeft(std::string_view text) { return StripLeftIf(text, IsSpace); }
std::string_view StripRight(std::string_view text) { return StripRightIf(text, IsSpace); }

std::string_view StripLeft(std::string_view text, std::string_view characters) {
  return StripLeftIf(text, [&](char32_t c) { return Contains(characters, c); });
}
std::string_view StripRight(std::string_view text, std::string_view characters) {
  return StripRightIf(text, [&](char32_t c) { return Contains(characters, c); });
}

std::string Upper(std::string_view text) { return MapCodePoints(text, AppendUpper); }
std::string Lower(std::string_view text) { return MapCodePoints(text, AppendLower); }

std::string Capitalize(std::string_view text) {
  bool first = true;
  return MapCodePoints(text, [&](std::string& out, char32_t c) {
    first ? AppendTitle(out, c) : AppendLower(out, c);
    first = false;
  });
}

std::string TitleCase(std::string_view text) {
  bool inside_word = false;
  return MapCodePoints(text, [&](std::string& out, char32_t c) {
    inside_word ? AppendLower(out, c) : AppendTitle(out, c);
    inside_word = IsUpper(c) || IsLower(c) || Category(c) == UTF8PROC_CATEGORY_LT;
  });
}

}  // namespace hayate::text::jinja
