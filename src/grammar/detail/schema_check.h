#pragma once
// JSON Schema on its way to the compiler: checked, and put into the form that the compiler enforces
// exactly. What would be ignored further down is refused here by name, so an answer under a schema
// always validates.

#include <string>
#include <string_view>

#include "base/status.h"

namespace hayate::grammar::detail {

// The schema rewritten: references become names under "$defs", whole-number bounds become 64-bit
// integers, required properties are declared. Errors are kInvalidArgument and hold the place in the
// schema as a JSON pointer below `field`.
Result<std::string> CheckSchema(std::string_view schema, const std::string& field);

}  // namespace hayate::grammar::detail
