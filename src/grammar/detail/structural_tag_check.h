#pragma once
// Structural tags on their way to the compiler: the schemas inside are checked like any other, the
// older form with "structures" becomes today's.

#include <string>
#include <string_view>

#include "base/status.h"

namespace hayate::grammar::detail {

Result<std::string> CheckStructuralTag(std::string_view tag, const std::string& field);

}  // namespace hayate::grammar::detail
