#pragma once
// Python's literals as JSON: strings, numbers, True, False, None, lists, tuples, dicts.

#include <optional>
#include <string>
#include <string_view>

namespace hayate::text {

// "a=1, b='x'" → {"a": 1, "b": "x"}. Nothing when it is anything else.
std::optional<std::string> KeywordArgumentsAsJson(std::string_view text);

}  // namespace hayate::text
