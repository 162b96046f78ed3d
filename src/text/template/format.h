#pragma once
// Python's two ways to format: "%s of %d" % (a, b), and "{} of {}".format(a, b).

#include <string>

#include "base/status.h"
#include "text/template/state.h"

namespace hayate::text::jinja {

// `arguments`: a tuple, a dict for %(name)s, or one value.
Result<Value> FormatPercent(State& state, const std::string& format, const Value& arguments);
Result<Value> FormatBraces(State& state, const std::string& format, const Arguments& arguments);

}  // namespace hayate::text::jinja
