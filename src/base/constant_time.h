#pragma once
// Comparison of secrets.

#include <string_view>

namespace hayate {

// Takes equal time wherever the first difference is; only the length of `sent` shows. An empty
// `secret` equals nothing.
bool EqualConstantTime(std::string_view sent, std::string_view secret);

}  // namespace hayate
