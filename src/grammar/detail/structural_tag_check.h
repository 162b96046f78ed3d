#pragma once
// Structural tags on their way to the compiler: the schemas inside are checked like any other, the
// older form with "structures" becomes today's.

#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hayate::grammar::detail {

// The rules of a checked schema that counts strings; `max_blanks` stand between two tokens of JSON,
// any number where it is negative.
using RulesOfSchema = std::function<Result<std::string>(const std::string& schema, int max_blanks)>;

// Schemas with counted strings (`mark`, counted_strings.h) become rules; where the mark is empty
// none counts.
Result<std::string> CheckStructuralTag(std::string_view tag, const std::string& field,
                                       std::string_view mark, const RulesOfSchema& rules_of);

}  // namespace hayate::grammar::detail
