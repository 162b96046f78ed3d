#pragma once
// The tests of templates: what may follow `is`.

#include <string_view>

#include "text/template/ast.h"

namespace hayate::text::jinja {

// Null for an unknown name.
TestFunction FindTest(std::string_view name);

// Applies a test by name, as select() and its like do.
Result<bool> ApplyTest(State& state, std::string_view name, const Value& value,
                       const Arguments& arguments);

}  // namespace hayate::text::jinja
