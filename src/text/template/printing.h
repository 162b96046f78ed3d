#pragma once
// Values as text, the way Python's str() and repr() write them.

#include <string>

#include "base/status.h"
#include "text/template/state.h"

namespace hayate::text::jinja {

// str(): what {{ value }} prints. Undefined prints nothing.
Status AppendText(State& state, const Value& value, std::string& out);
// repr(): how a value looks inside a printed list.
Status AppendRepr(State& state, const Value& value, std::string& out);
Result<std::string> ToText(State& state, const Value& value);

// Shortest digits that read back equal, always with a point or an exponent: "1.0", "1e+16", "nan".
void AppendFloat(std::string& out, double value);

}  // namespace hayate::text::jinja
