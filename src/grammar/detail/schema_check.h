#pragma once
// JSON Schema on its way to the compiler: checked, and put into the form that the compiler enforces
// exactly. What would be ignored further down is refused here by name, so an answer under a schema
// always validates.

#include <string>
#include <string_view>

#include "base/status.h"

namespace hayate::grammar::detail {

struct CheckedSchema {
  // References become names under "$defs", whole-number bounds become 64-bit integers, required
  // properties are declared.
  std::string text;
  bool counts = false;  // it holds patterns of counted strings
};

// `mark` is that of counted strings (counted_strings.h); where it is empty, lengths are left to the
// compiler, which makes an automaton of them. Errors are kInvalidArgument and hold the place in the
// schema as a JSON pointer below `field`.
Result<CheckedSchema> CheckSchema(std::string_view schema, const std::string& field,
                                  std::string_view mark);

}  // namespace hayate::grammar::detail
