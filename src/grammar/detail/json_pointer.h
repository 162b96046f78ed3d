#pragma once
// RFC 6901 pointers as JSON Schema writes them in a fragment: "#/$defs/a~1b/anyOf/0".

#include <simdjson.h>

#include <optional>
#include <string_view>

namespace hayate::grammar::detail {

// Nothing when the pointer is malformed or leads nowhere.
std::optional<simdjson::dom::element> ResolvePointer(simdjson::dom::element root,
                                                     std::string_view fragment);

}  // namespace hayate::grammar::detail
