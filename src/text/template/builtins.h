#pragma once
// The global functions of templates: range, dict, namespace, cycler, joiner, raise_exception,
// strftime_now.

#include <string_view>

#include "text/template/state.h"

namespace hayate::text::jinja {

// Null for an unknown name.
const NamedFunction* FindGlobalFunction(std::string_view name);

// Ends the rendering with the template's own message, which is shown as it is.
Result<Value> RaiseException(State& state, const Value& self, const Arguments& arguments);

}  // namespace hayate::text::jinja
