#pragma once
// One value in a field: width, alignment, precision. Shared by both ways to format.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/template/state.h"

namespace hayate::text::jinja {

struct FormatSpec {
  // A wider field or a longer fraction is refused.
  static constexpr int kMaxWidth = 1000;

  char32_t fill = U' ';
  char align = '\0';       // '<' '>' '^' '=', or none: text left, numbers right
  char sign = '-';         // '-': only when negative; '+' and ' ' for positive numbers
  bool alternate = false;  // 0x before hexadecimal digits
  char grouping = '\0';    // ',' or '_' between thousands
  int width = 0;
  std::optional<int> precision;
  char type = '\0';  // d x X o b e E f F g G % s c, or none
};

// Reads the part after the colon: "[[fill]align][sign][#][0][width][,][.precision][type]".
Result<FormatSpec> ParseFormatSpec(std::string_view text);

std::string FormatText(const FormatSpec& spec, std::string_view text);
Result<std::string> FormatInteger(const FormatSpec& spec, int64_t value);
Result<std::string> FormatFloat(const FormatSpec& spec, double value);
// format(value, spec)
Result<std::string> FormatValue(State& state, const FormatSpec& spec, const Value& value);

}  // namespace hayate::text::jinja
