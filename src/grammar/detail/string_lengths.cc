#include "grammar/detail/string_lengths.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "grammar/detail/repeat_counts.h"

namespace hayate::grammar::detail {

std::optional<std::string> PatternOfLengths(simdjson::dom::object schema) {
  const auto has = [&](const char* keyword) {
    return schema.at_key(keyword).error() == simdjson::SUCCESS;
  };
  const bool at_most = has("maxLength");
  if (has("pattern") || has("format") || (!at_most && !has("minLength"))) return std::nullopt;
  int64_t least = 0;
  int64_t most = 0;
  if (schema.at_key("minLength").get(least) != simdjson::SUCCESS) least = 0;
  if (schema.at_key("maxLength").get(most) != simdjson::SUCCESS) most = 0;
  // A bound that contradicts the other is the compiler's to name.
  if (at_most && (most < 1 || most < least)) return std::nullopt;
  if (std::max(least, most) > kMaxRepeats) return std::nullopt;
  return at_most ? fmt::format("^.{{{},{}}}$", least, most) : fmt::format("^.{{{},}}$", least);
}

}  // namespace hayate::grammar::detail
