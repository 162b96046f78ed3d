#pragma once
// minimum, maximum and their exclusive forms of a whole number, as 64-bit integers.

#include <simdjson.h>

#include <cstdint>
#include <optional>

#include "base/status.h"

namespace hayate::grammar::detail {

struct IntegerBounds {
  std::optional<int64_t> low;   // included
  std::optional<int64_t> high;  // included
};

// Bounds beyond 64 bits are drawn in: what is left still satisfies the schema. An error where no
// whole number of 64 bits fits.
Result<IntegerBounds> ReadIntegerBounds(simdjson::dom::object schema);

}  // namespace hayate::grammar::detail
