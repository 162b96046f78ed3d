#pragma once
// How often a regular expression repeats a part of itself.

#include <cstdint>
#include <string_view>

namespace hayate::grammar::detail {

// Up to it the compiler lays the copies out one after the other. Beyond, they are counted while the
// text is matched, and each mask tries every token that is longer than the part: tens of
// milliseconds, which all rows of the step wait for.
inline constexpr int64_t kMaxRepeats = 128;

// The largest bound of a "{m,n}" in the expression; 0 without any. Never too small.
int64_t LargestRepeat(std::string_view expression);

}  // namespace hayate::grammar::detail
