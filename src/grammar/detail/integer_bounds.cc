#include "grammar/detail/integer_bounds.h"

#include <cmath>
#include <limits>
#include <string>

#include "base/error.h"

namespace hayate::grammar::detail {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

enum class Side { kLow, kHigh };

// The tightest included bound that `value` gives; nothing when it leaves no 64-bit integer.
std::optional<int64_t> Included(simdjson::dom::element value, Side side, bool exclusive) {
  int64_t whole = 0;
  if (value.get(whole) == simdjson::SUCCESS) {
    if (!exclusive) return whole;
    if (side == Side::kLow) return whole == kMax ? std::nullopt : std::optional(whole + 1);
    return whole == kMin ? std::nullopt : std::optional(whole - 1);
  }
  double number = 0;
  if (value.get(number) != simdjson::SUCCESS) return std::nullopt;
  const double rounded = side == Side::kLow ? std::ceil(number) : std::floor(number);
  constexpr double kEdge = 9223372036854775808.0;  // 2⁶³
  if (side == Side::kLow && rounded < -kEdge) return kMin;
  if (side == Side::kHigh && rounded >= kEdge) return kMax;
  if (rounded < -kEdge || rounded >= kEdge) return std::nullopt;
  const auto result = static_cast<int64_t>(rounded);
  if (!exclusive || rounded != number) return result;
  if (side == Side::kLow) return result == kMax ? std::nullopt : std::optional(result + 1);
  return result == kMin ? std::nullopt : std::optional(result - 1);
}

}  // namespace

Result<IntegerBounds> ReadIntegerBounds(simdjson::dom::object schema) {
  IntegerBounds bounds;
  struct Keyword {
    const char* name;
    Side side;
    bool exclusive;
  };
  for (const Keyword& keyword :
       {Keyword{"minimum", Side::kLow, false}, Keyword{"exclusiveMinimum", Side::kLow, true},
        Keyword{"maximum", Side::kHigh, false}, Keyword{"exclusiveMaximum", Side::kHigh, true}}) {
    simdjson::dom::element value;
    if (schema.at_key(keyword.name).get(value) != simdjson::SUCCESS) continue;
    if (!value.is_number()) {
      return Error(ErrorCode::kInvalidArgument, "{} must be a number", keyword.name);
    }
    const auto bound = Included(value, keyword.side, keyword.exclusive);
    if (!bound) return Error(ErrorCode::kInvalidArgument, "{} leaves no integer", keyword.name);
    std::optional<int64_t>& mine = keyword.side == Side::kLow ? bounds.low : bounds.high;
    if (!mine || (keyword.side == Side::kLow ? *bound > *mine : *bound < *mine)) mine = *bound;
  }
  if (bounds.low && bounds.high && *bounds.low > *bounds.high) {
    return Error(ErrorCode::kInvalidArgument, "no integer lies between {} and {}", *bounds.low,
                 *bounds.high);
  }
  return bounds;
}

}  // namespace hayate::grammar::detail
