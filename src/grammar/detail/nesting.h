#pragma once
// Limits of a source text that keep the recursive parsers below it off the end of their stack.

#include <string_view>

#include "base/status.h"

namespace hayate::grammar::detail {

inline constexpr int kMaxNesting = 128;

// Brackets nest at most kMaxNesting deep, the text is UTF-8 without NUL. For expressions and
// grammars; brackets in quotes and classes count too, which no sensible text notices.
Status CheckNesting(std::string_view text, const std::string& field);

}  // namespace hayate::grammar::detail
