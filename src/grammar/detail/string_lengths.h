#pragma once
// minLength and maxLength of a string as an expression.

#include <simdjson.h>

#include <optional>
#include <string>

namespace hayate::grammar::detail {

// The expression for a string that is bounded by its length alone and by little; nothing for any
// other. It compiles to one automaton, in half the time of the keywords, which become a rule for
// each character.
std::optional<std::string> PatternOfLengths(simdjson::dom::object schema);

}  // namespace hayate::grammar::detail
