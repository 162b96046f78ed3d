#pragma once
// Python's notation for strings: reading escapes in templates, writing repr().

#include <string>
#include <string_view>

#include "base/status.h"

namespace hayate::text::jinja {

// Resolves \n, \x41, \u00e9, \U0001f600, \101 and their like; an unknown escape stays as it is.
Result<std::string> UnescapeString(std::string_view text);

// repr(): 'it''s' style quoting, escapes for what does not print.
void AppendQuoted(std::string& out, std::string_view text);

}  // namespace hayate::text::jinja
