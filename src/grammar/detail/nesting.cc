#include "grammar/detail/nesting.h"

#include <simdjson.h>

#include <algorithm>

#include "base/error.h"

namespace hayate::grammar::detail {

Status CheckNesting(std::string_view text, const std::string& field) {
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    return InvalidField(field, "is not UTF-8");
  }
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\0') return InvalidField(field, "holds a NUL at offset {}", i);
    if (c == '\\') {
      ++i;
    } else if (c == '(' || c == '[' || c == '{') {
      if (++depth > kMaxNesting) {
        return InvalidField(field, "nests deeper than {} at offset {}", kMaxNesting, i);
      }
    } else if (c == ')' || c == ']' || c == '}') {
      depth = std::max(0, depth - 1);
    }
  }
  return OkStatus();
}

}  // namespace hayate::grammar::detail
