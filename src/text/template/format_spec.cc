#include "text/template/format_spec.h"

#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "text/template/code_points.h"
#include "text/template/printing.h"

namespace hayate::text::jinja {
namespace {

bool IsAlign(char c) { return c == '<' || c == '>' || c == '^' || c == '='; }

Result<int> TakeNumber(std::string_view& text) {
  int value = 0;
  while (!text.empty() && text[0] >= '0' && text[0] <= '9') {
    value = value * 10 + (text[0] - '0');
    if (value > FormatSpec::kMaxWidth) {
      return Error(ErrorCode::kInvalidArgument, "a format's width is over {}",
                   FormatSpec::kMaxWidth);
    }
    text.remove_prefix(1);
  }
  return value;
}

bool TakeOne(std::string_view& text, char c) {
  if (!text.starts_with(c)) return false;
  text.remove_prefix(1);
  return true;
}

void Repeat(std::string& out, char32_t fill, size_t count) {
  for (size_t i = 0; i < count; ++i) AppendUtf8(out, fill);
}

// `sign` stands before the padding when the field is aligned with '='.
std::string Pad(const FormatSpec& spec, char default_align, std::string_view sign,
                std::string_view body) {
  const size_t length = Length(sign) + Length(body);
  const auto width = static_cast<size_t>(spec.width);
  const size_t missing = width > length ? width - length : 0;
  const char align = spec.align != '\0' ? spec.align : default_align;
  const size_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  std::string out;
  Repeat(out, spec.fill, before);
  out += sign;
  if (align == '=') Repeat(out, spec.fill, missing);
  out += body;
  if (align != '=') Repeat(out, spec.fill, missing - before);
  return out;
}

std::string_view SignText(const FormatSpec& spec, bool negative) {
  if (negative) return "-";
  return spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
}

// Puts `separator` between groups of three in the digits before a point or exponent.
std::string Group(std::string digits, char separator) {
  if (separator == '\0') return digits;
  size_t end = digits.find_first_not_of("0123456789");
  if (end == std::string::npos) end = digits.size();
  for (size_t i = end; i > 3; i -= 3) digits.insert(i - 3, 1, separator);
  return digits;
}

std::string Digits(uint64_t value, unsigned base, bool upper) {
  const char* const letters = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string reversed;
  do {
    reversed += letters[value % base];
    value /= base;
  } while (value > 0);
  return {reversed.rbegin(), reversed.rend()};
}

Status WrongType(char type, std::string_view what) {
  return Error(ErrorCode::kInvalidArgument, "format '{}' does not fit {}", type, what);
}

// printf's %e, %f and %g with the precision given.
std::string PrintMagnitude(char type, int precision, double magnitude) {
  const char format[] = {'%', '.', '*', type, '\0'};
  const int size = std::snprintf(nullptr, 0, format, precision, magnitude);
  std::string digits(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(digits.data(), digits.size(), format, precision, magnitude);
  digits.resize(static_cast<size_t>(size));
  return digits;
}

}  // namespace

Result<FormatSpec> ParseFormatSpec(std::string_view text) {
  FormatSpec spec;
  const std::string_view whole = text;
  if (!text.empty()) {
    const CodePoint fill = CodePointAt(text, 0);
    if (text.size() > fill.length && IsAlign(text[fill.length])) {
      spec.fill = fill.value;
      spec.align = text[fill.length];
      text.remove_prefix(fill.length + 1);
    } else if (IsAlign(text[0])) {
      spec.align = text[0];
      text.remove_prefix(1);
    }
  }
  for (const char sign : {'+', '-', ' '}) {
    if (TakeOne(text, sign)) {
      spec.sign = sign;
      break;
    }
  }
  spec.alternate = TakeOne(text, '#');
  if (TakeOne(text, '0') && spec.align == '\0') {
    spec.fill = U'0';
    spec.align = '=';
  }
  ASSIGN_OR_RETURN(spec.width, TakeNumber(text));
  for (const char grouping : {',', '_'}) {
    if (TakeOne(text, grouping)) spec.grouping = grouping;
  }
  if (TakeOne(text, '.')) {
    ASSIGN_OR_RETURN(spec.precision, TakeNumber(text));
  }
  if (!text.empty()) {
    spec.type = text[0];
    text.remove_prefix(1);
  }
  if (!text.empty()) return Error(ErrorCode::kInvalidArgument, "invalid format '{}'", whole);
  return spec;
}

std::string FormatText(const FormatSpec& spec, std::string_view text) {
  if (spec.precision) text = text.substr(0, ByteOffset(text, static_cast<size_t>(*spec.precision)));
  return Pad(spec, '<', "", text);
}

Result<std::string> FormatInteger(const FormatSpec& spec, int64_t value) {
  const bool negative = value < 0;
  const uint64_t magnitude =
      negative ? uint64_t{0} - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string sign(SignText(spec, negative));
  std::string digits;
  switch (spec.type) {
    case '\0':
    case 'd':
      digits = Group(Digits(magnitude, 10, false), spec.grouping);
      break;
    case 'x':
    case 'X':
      digits = Digits(magnitude, 16, spec.type == 'X');
      break;
    case 'o':
      digits = Digits(magnitude, 8, false);
      break;
    case 'b':
      digits = Digits(magnitude, 2, false);
      break;
    case 'c': {
      if (value < 0 || value > 0x10FFFF) return WrongType('c', "this number");
      std::string character;
      AppendUtf8(character, static_cast<char32_t>(value));
      return FormatText(spec, character);
    }
    case 's':
      return WrongType('s', "a number");
    default:
      return FormatFloat(spec, static_cast<double>(value));
  }
  if (spec.alternate && spec.type != 'd' && spec.type != '\0') sign += {'0', spec.type};
  return Pad(spec, '>', sign, digits);
}

Result<std::string> FormatFloat(const FormatSpec& spec, double value) {
  const std::string sign(SignText(spec, std::signbit(value) && !std::isnan(value)));
  const double magnitude = std::fabs(value);
  std::string digits;
  switch (spec.type) {
    case '\0':
      if (spec.precision) {
        digits = PrintMagnitude('g', std::max(*spec.precision, 1), magnitude);
      } else {
        AppendFloat(digits, magnitude);
      }
      break;
    case '%':
      digits = PrintMagnitude('f', spec.precision.value_or(6), magnitude * 100) + '%';
      break;
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
      digits = PrintMagnitude(spec.type, spec.precision.value_or(6), magnitude);
      break;
    default:
      return WrongType(spec.type, "a number");
  }
  return Pad(spec, '>', sign, Group(std::move(digits), spec.grouping));
}

Result<std::string> FormatValue(State& state, const FormatSpec& spec, const Value& value) {
  // A bool prints as a word only in an empty format.
  const bool plain = spec.type == '\0' && spec.width == 0 && !spec.precision;
  if (value.is_float()) return FormatFloat(spec, value.as_double());
  if (value.is_integral() && !(value.is_bool() && plain))
    return FormatInteger(spec, value.as_int());
  if (spec.type != '\0' && spec.type != 's') return WrongType(spec.type, value.type_name());
  ASSIGN_OR_RETURN(const std::string text, ToText(state, value));
  return FormatText(spec, text);
}

}  // namespace hayate::text::jinja
