#include "grammar/detail/repeat_counts.h"

#include <algorithm>
#include <cstddef>

namespace hayate::grammar::detail {
namespace {

// The larger bound of the braces that open before `begin`.
int64_t LargerBound(std::string_view expression, size_t begin) {
  constexpr int64_t kMany = 1'000'000'000;
  int64_t largest = 0;
  int64_t number = 0;
  for (size_t i = begin; i < expression.size() && expression[i] != '}'; ++i) {
    const char c = expression[i];
    if (c == ',') {
      number = 0;
    } else if (c >= '0' && c <= '9') {
      number = std::min(kMany, number * 10 + (c - '0'));
      largest = std::max(largest, number);
    } else if (c != ' ') {
      return 0;  // no repetition: "\p{L}", or braces as they stand
    }
  }
  return largest;
}

}  // namespace

int64_t LargestRepeat(std::string_view expression) {
  int64_t largest = 0;
  for (size_t i = 0; i < expression.size(); ++i) {
    if (expression[i] == '\\') {
      ++i;
    } else if (expression[i] == '{') {
      largest = std::max(largest, LargerBound(expression, i + 1));
    }
  }
  return largest;
}

}  // namespace hayate::grammar::detail
