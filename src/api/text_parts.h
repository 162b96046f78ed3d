#pragma once
// Lists of typed content parts, of which this server reads text.

#include <simdjson.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hayate::api {

// The texts of a string or of a list of parts. Parts are strings or objects whose type is one of
// `types`; other kinds are refused by name. `where` names the field in errors.
Result<std::vector<std::string>> ReadTexts(simdjson::dom::element content, const std::string& where,
                                           std::span<const std::string_view> types);

}  // namespace hayate::api
