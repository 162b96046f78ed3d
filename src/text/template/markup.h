#pragma once
// Text marked as safe for HTML. Chat templates have no use for it, but some carry `|safe`, and then
// jinja2 escapes the plain text that `+` joins to it.

#include <string>
#include <string_view>

#include "base/status.h"
#include "text/template/state.h"

namespace hayate::text::jinja {

std::string EscapeHtml(std::string_view text);

// left + right where at least one of the two texts is marked.
Result<Value> ConcatenateMarkup(State& state, const Value& left, const Value& right);

}  // namespace hayate::text::jinja
