#pragma once
// Numbers in templates: 12, 1_000, 0x1F, 0o17, 0b11, 1.5, 1e-3.

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hayate::text::jinja {

struct NumberLiteral {
  std::string digits;  // without underscores; a base prefix in lower case
  bool is_float = false;
  size_t length = 0;  // bytes of the source
};

// The number at the start of `text`, which starts with a digit.
Result<NumberLiteral> ScanNumber(std::string_view text);
// The same where a point does not belong to the number.
Result<NumberLiteral> ScanInteger(std::string_view text);

}  // namespace hayate::text::jinja
