#include "text/template/string_literal.h"

#include <fmt/format.h>

#include <iterator>
#include <optional>

#include "base/error.h"
#include "text/template/code_points.h"

namespace hayate::text::jinja {
namespace {

std::optional<uint32_t> DigitsToNumber(std::string_view digits, uint32_t base) {
  uint32_t value = 0;
  for (const char c : digits) {
    const char lower = static_cast<char>(c | 0x20);
    uint32_t digit = base;
    if (c >= '0' && c <= '9') digit = static_cast<uint32_t>(c - '0');
    if (lower >= 'a' && lower <= 'f') digit = static_cast<uint32_t>(lower - 'a' + 10);
    if (digit >= base) return std::nullopt;
    value = value * base + digit;
  }
  return value;
}

// Appends the code point written by `count` hex digits at `i` and moves past them.
Status AppendHexEscape(std::string& out, std::string_view text, size_t& i, size_t count) {
  const std::optional<uint32_t> value =
      i + count <= text.size() ? DigitsToNumber(text.substr(i, count), 16) : std::nullopt;
  if (!value)
    return Error(ErrorCode::kInvalidArgument, "a string escape needs {} hex digits", count);
  if (*value > 0x10FFFF || (*value >= 0xD800 && *value < 0xE000)) {
    return Error(ErrorCode::kInvalidArgument, "a string escape names no character");
  }
  AppendUtf8(out, *value);
  i += count;
  return OkStatus();
}

void AppendOctalEscape(std::string& out, std::string_view text, size_t& i) {
  uint32_t value = 0;
  for (size_t n = 0; n < 3 && i < text.size() && text[i] >= '0' && text[i] <= '7'; ++n, ++i) {
    value = value * 8 + static_cast<uint32_t>(text[i] - '0');
  }
  AppendUtf8(out, value);
}

// The escape whose letter stands at `i`; moves past it.
Status AppendEscape(std::string& out, std::string_view text, size_t& i) {
  static constexpr std::string_view kLetters = "abfnrtv\\'\"";
  static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
  const char letter = text[i];
  if (const size_t at = kLetters.find(letter); at != std::string_view::npos) {
    out += kMeanings[at];
    ++i;
    return OkStatus();
  }
  if (letter >= '0' && letter <= '7') {
    AppendOctalEscape(out, text, i);
    return OkStatus();
  }
  ++i;
  switch (letter) {
    case '\n':
      return OkStatus();  // a line continued
    case 'x':
      return AppendHexEscape(out, text, i, 2);
    case 'u':
      return AppendHexEscape(out, text, i, 4);
    case 'U':
      return AppendHexEscape(out, text, i, 8);
    case 'N':
      return Error(ErrorCode::kUnsupported, "named characters (\\N) are not supported");
    default:
      out += '\\';
      out += letter;
      return OkStatus();
  }
}

void AppendReprOf(std::string& out, char32_t c, char quote) {
  switch (c) {
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  if (c == static_cast<char32_t>(quote)) {
    out += '\\';
    out += quote;
  } else if (IsPrintable(c)) {
    AppendUtf8(out, c);
  } else if (c < 0x100) {
    fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<uint32_t>(c));
  } else if (c < 0x10000) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<uint32_t>(c));
  } else {
    fmt::format_to(std::back_inserter(out), "\\U{:08x}", static_cast<uint32_t>(c));
  }
}

}  // namespace

Result<std::string> UnescapeString(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  size_t i = 0;
  while (i < text.size()) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i++];
      continue;
    }
    ++i;
    RETURN_IF_ERROR(AppendEscape(out, text, i));
  }
  return out;
}

void AppendQuoted(std::string& out, std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out += quote;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = CodePointAt(text, i);
    AppendReprOf(out, c.value, quote);
    i += c.length;
  }
  out += quote;
}

}  // namespace hayate::text::jinja
