#pragma once
// Finding and replacing text in linear time, whatever is looked for.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "text/template/state.h"

namespace hayate::text::jinja {

// Byte offset of `needle` at or after `from`, or npos.
size_t FindText(std::string_view haystack, std::string_view needle, size_t from = 0);

struct Replacement {
  std::string_view from, to;
  int64_t limit = -1;  // at most so many, from the left; all if negative
};
// str.replace(): an empty `from` matches before every character and at the end.
Result<Value> ReplaceText(State& state, std::string_view text, const Replacement& replacement);

}  // namespace hayate::text::jinja
