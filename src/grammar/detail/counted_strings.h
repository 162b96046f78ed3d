#pragma once
// Strings of a JSON schema that are bounded by their length alone. As a rule for each character, or
// as an automaton with a state for each, a bound of thousands takes seconds to compile; so the
// grammar says a string of any length, and whoever matches counts its characters.

#include <simdjson.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace hayate::grammar::detail {

struct LengthBounds {
  int32_t least = 0;
  int32_t most = 0;
};

// Of minLength and maxLength; nothing where a pattern or a format stands beside them, or where they
// contradict each other, which is the compiler's to name.
std::optional<LengthBounds> ReadLengthBounds(simdjson::dom::object schema);

// A word that no text in the JSON holds, however it is spelled. Patterns and rules that begin with
// it are ours.
std::string MarkFor(std::string_view json);

// The pattern that stands for a counted string in a schema on its way to the compiler.
std::string PatternOf(std::string_view mark, const LengthBounds& bounds);

// The compiler's rules with a rule of ours for each such pattern: from behind the opening quote to
// the closing one. It spells characters as they are or by escapes of one letter, so that two bytes
// after a backslash are always one character.
std::string WithCountedRules(std::string rules, std::string_view mark);

// Nothing for rules of other names.
std::optional<LengthBounds> BoundsOfRule(std::string_view name, std::string_view mark);

}  // namespace hayate::grammar::detail
