#pragma once
// JSON ↔ Value.

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/template/state.h"
#include "text/template/value.h"

namespace hayate::text::jinja {

// Nested deeper than this, a document is refused.
inline constexpr int kMaxJsonDepth = 128;

// Unsigned integers beyond the signed range become floats.
Result<Value> ParseJson(std::string_view json);

// json.dumps as transformers' tojson calls it.
struct JsonStyle {
  bool ascii_only = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level of it; with it, every item has its own line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
Result<Value> ToJson(State& state, const Value& value, const JsonStyle& style);

}  // namespace hayate::text::jinja
