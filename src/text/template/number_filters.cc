#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "text/template/access.h"
#include "text/template/arguments.h"
#include "text/template/arithmetic.h"
#include "text/template/code_points.h"
#include "text/template/filters.h"

namespace hayate::text::jinja {
namespace {

Status RequireDefined(const Value& value) {
  if (!value.is_undefined()) return OkStatus();
  return Error(ErrorCode::kInvalidArgument, "{}", value.undefined_reason());
}

// `text` without white space around it and underscores between digits; nothing if an underscore
// stands elsewhere.
std::optional<std::string> CleanNumber(std::string_view text) {
  text = StripLeft(StripRight(text));
  std::string clean;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto is_digit = [&](size_t at) {
      return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
    };
    if (text[i] != '_') {
      clean += text[i];
    } else if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) {
      return std::nullopt;
    }
  }
  return clean;
}

// int(text, base)
std::optional<int64_t> ReadInteger(std::string_view text, int base) {
  const std::optional<std::string> clean = CleanNumber(text);
  if (!clean) return std::nullopt;
  std::string_view digits = *clean;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  const auto has_prefix = [&](char letter) {
    return digits.size() > 2 && digits[0] == '0' && (digits[1] | 0x20) == letter;
  };
  for (const auto& [letter, prefix_base] : {std::pair{'x', 16}, {'o', 8}, {'b', 2}}) {
    if (!has_prefix(letter) || (base != prefix_base && base != 0)) continue;
    digits.remove_prefix(2);
    base = prefix_base;
    break;
  }
  if (base == 0) base = 10;
  uint64_t magnitude = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, magnitude, base);
  if (digits.empty() || error != std::errc() || stop != end || magnitude > INT64_MAX) {
    return std::nullopt;
  }
  return negative ? -static_cast<int64_t>(magnitude) : static_cast<int64_t>(magnitude);
}

// float(text)
std::optional<double> ReadFloat(std::string_view text) {
  const std::optional<std::string> clean = CleanNumber(text);
  if (!clean) return std::nullopt;
  std::string_view digits = *clean;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.empty() || digits[0] == '-' || digits[0] == '+' || digits.find('(') != digits.npos) {
    return std::nullopt;
  }
  double value = 0.0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (stop != end) return std::nullopt;
  if (error == std::errc::result_out_of_range)
    value = std::strtod(std::string(digits).c_str(), nullptr);
  if (error == std::errc::invalid_argument) return std::nullopt;
  return negative ? -value : value;
}

std::optional<int64_t> Truncate(double value) {
  if (!(std::fabs(value) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(value);
}

Result<Value> ToInteger(State&, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<2>(arguments, {"default", "base"}));
  ASSIGN_OR_RETURN(const int64_t base, IntegerArgument(bound[1], 10, "base"));
  if (base != 0 && (base < 2 || base > 36)) {
    return Error(ErrorCode::kInvalidArgument, "'base' must be 0 or 2 to 36");
  }
  RETURN_IF_ERROR(RequireDefined(value));
  std::optional<int64_t> result;
  if (value.is_integral()) result = value.as_int();
  if (value.is_float()) result = Truncate(value.as_double());
  if (value.is_string()) {
    result = ReadInteger(value.string(), static_cast<int>(base));
    if (!result) {
      const std::optional<double> number = ReadFloat(value.string());
      if (number) result = Truncate(*number);
    }
  }
  if (result) return Value::Int(*result);
  return bound[0] == nullptr ? Value::Int(0) : *bound[0];
}

Result<Value> ToFloat(State&, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<1>(arguments, {"default"}));
  RETURN_IF_ERROR(RequireDefined(value));
  std::optional<double> result;
  if (value.is_number()) result = value.as_double();
  if (value.is_string()) result = ReadFloat(value.string());
  if (result) return Value::Float(*result);
  return bound[0] == nullptr ? Value::Float(0.0) : *bound[0];
}

// Python's round(): to the nearest decimal, which printf finds exactly.
double RoundDecimal(double value, int precision) {
  if (!std::isfinite(value)) return value;
  if (precision < 0) {
    const double unit = std::pow(10.0, -precision);
    return std::isfinite(unit) ? std::nearbyint(value / unit) * unit : 0.0 * value;
  }
  char digits[800];  // 309 digits before the point, at most 330 after it
  const int size = std::snprintf(digits, sizeof(digits), "%.*f", precision, value);
  double rounded = value;
  std::from_chars(digits, digits + size, rounded);
  return rounded;
}

// Half-way cases go to the even multiple of 10^digits.
Result<Value> RoundInteger(int64_t value, int64_t digits) {
  if (digits > 18) return Value::Int(0);
  int64_t unit = 1;
  for (int64_t i = 0; i < digits; ++i) unit *= 10;
  const int64_t remainder = ((value % unit) + unit) % unit;
  int64_t rounded = 0;
  if (__builtin_sub_overflow(value, remainder, &rounded)) {
    return Error(ErrorCode::kInvalidArgument, "the result does not fit a 64-bit integer");
  }
  const bool up = remainder * 2 > unit || (remainder * 2 == unit && (rounded / unit) % 2 != 0);
  if (up && unit > 1 && __builtin_add_overflow(rounded, unit, &rounded)) {
    return Error(ErrorCode::kInvalidArgument, "the result does not fit a 64-bit integer");
  }
  return Value::Int(rounded);
}

Result<Value> Round(State&, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<2>(arguments, {"precision", "method"}));
  ASSIGN_OR_RETURN(const int64_t precision, IntegerArgument(bound[0], 0, "precision"));
  ASSIGN_OR_RETURN(const std::string_view method, TextArgument(bound[1], "common", "method"));
  RETURN_IF_ERROR(RequireDefined(value));
  if (!value.is_number()) {
    return Error(ErrorCode::kInvalidArgument, "rounds numbers only, not {}", value.type_name());
  }
  if (precision < -330 || precision > 330) {
    return Error(ErrorCode::kInvalidArgument, "'precision' is out of range");
  }
  if (method == "common") {
    if (value.is_integral() && precision >= 0) return Value::Int(value.as_int());
    if (value.is_integral()) return RoundInteger(value.as_int(), -precision);
    return Value::Float(RoundDecimal(value.as_double(), static_cast<int>(precision)));
  }
  if (method != "ceil" && method != "floor") {
    return Error(ErrorCode::kInvalidArgument, "'method' must be common, ceil or floor");
  }
  const double unit = std::pow(10.0, static_cast<double>(precision));
  const double scaled = value.as_double() * unit;
  return Value::Float((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / unit);
}

Result<Value> Abs(State& state, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  RETURN_IF_ERROR(RequireDefined(value));
  if (value.is_float()) return Value::Float(std::fabs(value.as_double()));
  if (!value.is_integral()) {
    return Error(ErrorCode::kInvalidArgument, "{} has no absolute value", value.type_name());
  }
  if (value.as_int() >= 0) return Value::Int(value.as_int());
  return ApplyUnary(state, UnaryOperator::kNegate, value);
}

Result<Value> Sum(State& state, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<2>(arguments, {"attribute", "start"}));
  ASSIGN_OR_RETURN(const auto items, Iterate(state, value));
  Value total = bound[1] == nullptr ? Value::Int(0) : *bound[1];
  const bool whole = bound[0] == nullptr || bound[0]->is_none();
  ASSIGN_OR_RETURN(const AttributePath path,
                   AttributePath::Parse(whole ? Value::None() : *bound[0]));
  for (const Value& item : items->items) {
    RETURN_IF_ERROR(state.Step());
    Value term = item;
    if (!whole) {
      ASSIGN_OR_RETURN(term, path.Get(state, item));
    }
    ASSIGN_OR_RETURN(total, ApplyBinary(state, BinaryOperator::kAdd, total, term));
  }
  return total;
}

constexpr std::array<NamedFunction, 5> kFilters = {{
    {"abs", Abs},
    {"float", ToFloat},
    {"int", ToInteger},
    {"round", Round},
    {"sum", Sum},
}};

}  // namespace

std::span<const NamedFunction> NumberFilters() { return kFilters; }

}  // namespace hayate::text::jinja
