#pragma once
// The methods of text, lists and dicts that leave their receiver as it is.

#include <string_view>

#include "text/template/state.h"

namespace hayate::text::jinja {

// Null when values of this kind have no such method.
const NamedFunction* FindMethod(const Value& value, std::string_view name);
// A Python method that changes its receiver, which the sandbox forbids.
bool IsMutator(const Value& value, std::string_view name);

// The tables behind FindMethod.
const NamedFunction* FindTextMethod(std::string_view name);
const NamedFunction* FindContainerMethod(const Value& value, std::string_view name);

}  // namespace hayate::text::jinja
