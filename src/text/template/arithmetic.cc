#include "text/template/arithmetic.h"

#include <cmath>

#include "base/error.h"
#include "text/template/format.h"
#include "text/template/markup.h"

namespace hayate::text::jinja {
namespace {

std::string_view Symbol(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::kAdd:
      return "+";
    case BinaryOperator::kSubtract:
      return "-";
    case BinaryOperator::kMultiply:
      return "*";
    case BinaryOperator::kDivide:
      return "/";
    case BinaryOperator::kFloorDivide:
      return "//";
    case BinaryOperator::kModulo:
      return "%";
    case BinaryOperator::kPower:
      return "**";
  }
  return "?";
}

Status Overflow() {
  return Error(ErrorCode::kInvalidArgument, "the result does not fit a 64-bit integer");
}

Status DivisionByZero() { return Error(ErrorCode::kInvalidArgument, "division by zero"); }

Result<Value> IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return DivisionByZero();
    return Value::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return Value::Int(result);
}

// Rounds towards minus infinity; `right` is not zero and the quotient fits.
int64_t FloorDivide(int64_t left, int64_t right) {
  const int64_t quotient = left / right;
  return left % right != 0 && (left < 0) != (right < 0) ? quotient - 1 : quotient;
}

Result<Value> ApplyToIntegers(BinaryOperator op, int64_t left, int64_t right) {
  int64_t result = 0;
  switch (op) {
    case BinaryOperator::kAdd:
      if (__builtin_add_overflow(left, right, &result)) return Overflow();
      return Value::Int(result);
    case BinaryOperator::kSubtract:
      if (__builtin_sub_overflow(left, right, &result)) return Overflow();
      return Value::Int(result);
    case BinaryOperator::kMultiply:
      if (__builtin_mul_overflow(left, right, &result)) return Overflow();
      return Value::Int(result);
    case BinaryOperator::kPower:
      return IntegerPower(left, right);
    default:
      break;
  }
  if (right == 0) return DivisionByZero();
  if (op == BinaryOperator::kDivide) {
    return Value::Float(static_cast<double>(left) / static_cast<double>(right));
  }
  if (left == INT64_MIN && right == -1) {
    if (op == BinaryOperator::kModulo) return Value::Int(0);
    return Overflow();
  }
  const int64_t quotient = FloorDivide(left, right);
  return Value::Int(op == BinaryOperator::kFloorDivide ? quotient : left - quotient * right);
}

double FloatModulo(double left, double right) {
  const double remainder = std::fmod(left, right);
  if (remainder == 0.0) return std::copysign(0.0, right);
  return (remainder < 0.0) != (right < 0.0) ? remainder + right : remainder;
}

// The quotient that belongs to FloatModulo, rounded as Python rounds it.
double FloatFloorDivide(double left, double right) {
  double remainder = std::fmod(left, right);
  double quotient = (left - remainder) / right;
  if (remainder != 0.0 && (remainder < 0.0) != (right < 0.0)) quotient -= 1.0;
  if (quotient == 0.0) return std::copysign(0.0, left / right);
  const double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1.0 : floored;
}

Result<Value> ApplyToFloats(BinaryOperator op, double left, double right) {
  switch (op) {
    case BinaryOperator::kAdd:
      return Value::Float(left + right);
    case BinaryOperator::kSubtract:
      return Value::Float(left - right);
    case BinaryOperator::kMultiply:
      return Value::Float(left * right);
    case BinaryOperator::kPower: {
      if (left == 0.0 && right < 0.0) return DivisionByZero();
      const double result = std::pow(left, right);
      if (std::isfinite(left) && std::isfinite(right) && !std::isfinite(result)) {
        return Error(ErrorCode::kInvalidArgument, "the result of ** is no finite real number");
      }
      return Value::Float(result);
    }
    default:
      break;
  }
  if (right == 0.0) return DivisionByZero();
  if (op == BinaryOperator::kDivide) return Value::Float(left / right);
  return Value::Float(op == BinaryOperator::kModulo ? FloatModulo(left, right)
                                                    : FloatFloorDivide(left, right));
}

bool IsListOrTuple(const Value& value) {
  return value.is_sequence() && (value.sequence().type == SequenceType::kList ||
                                 value.sequence().type == SequenceType::kTuple);
}

Result<Value> Join(State& state, const Sequence& left, const Sequence& right) {
  RETURN_IF_ERROR(state.Charge((left.items.size() + right.items.size()) * sizeof(Value)));
  Sequence joined{.type = left.type, .items = left.items, .label = {}};
  joined.items.insert(joined.items.end(), right.items.begin(), right.items.end());
  return state.NewSequence(std::move(joined));
}

Result<Value> RepeatText(State& state, const std::string& text, int64_t count) {
  if (count <= 0 || text.empty()) return Value::String("");
  size_t bytes = 0;
  if (__builtin_mul_overflow(text.size(), static_cast<size_t>(count), &bytes)) bytes = SIZE_MAX;
  RETURN_IF_ERROR(state.CheckStringSize(bytes));
  RETURN_IF_ERROR(state.Step(count));
  std::string out;
  out.reserve(bytes);
  for (int64_t i = 0; i < count; ++i) out += text;
  return state.NewString(std::move(out));
}

Result<Value> RepeatSequence(State& state, const Sequence& sequence, int64_t count) {
  Sequence repeated{.type = sequence.type, .items = {}, .label = {}};
  if (sequence.items.empty()) count = 0;
  for (int64_t i = 0; i < count; ++i) {
    RETURN_IF_ERROR(state.Step(1 + static_cast<int64_t>(sequence.items.size() / 8)));
    RETURN_IF_ERROR(state.Charge(sequence.items.size() * sizeof(Value)));
    repeated.items.insert(repeated.items.end(), sequence.items.begin(), sequence.items.end());
  }
  return state.NewSequence(std::move(repeated));
}

// Operators on text and lists; an error for everything else.
Result<Value> ApplyToOthers(State& state, BinaryOperator op, const Value& left,
                            const Value& right) {
  if (op == BinaryOperator::kAdd && left.is_string() && right.is_string()) {
    if (left.is_markup() || right.is_markup()) return ConcatenateMarkup(state, left, right);
    RETURN_IF_ERROR(state.CheckStringSize(left.string().size() + right.string().size()));
    return state.NewString(left.string() + right.string());
  }
  if (op == BinaryOperator::kAdd && IsListOrTuple(left) && IsListOrTuple(right) &&
      left.sequence().type == right.sequence().type) {
    return Join(state, left.sequence(), right.sequence());
  }
  if (op == BinaryOperator::kModulo && left.is_string()) {
    return FormatPercent(state, left.string(), right);
  }
  if (op == BinaryOperator::kMultiply) {
    const Value& repeated = left.is_integral() ? right : left;
    const Value& count = left.is_integral() ? left : right;
    if (count.is_integral() && repeated.is_string()) {
      return RepeatText(state, repeated.string(), count.as_int());
    }
    if (count.is_integral() && IsListOrTuple(repeated)) {
      return RepeatSequence(state, repeated.sequence(), count.as_int());
    }
  }
  return Error(ErrorCode::kInvalidArgument, "'{}' does not work between {} and {}", Symbol(op),
               left.type_name(), right.type_name());
}

}  // namespace

Result<Value> ApplyUnary(State&, UnaryOperator op, const Value& operand) {
  if (op == UnaryOperator::kNot) return Value::Bool(!operand.truthy());
  if (operand.is_undefined()) {
    return Error(ErrorCode::kInvalidArgument, "{}", operand.undefined_reason());
  }
  const bool negate = op == UnaryOperator::kNegate;
  if (operand.is_float()) {
    return Value::Float(negate ? -operand.as_double() : operand.as_double());
  }
  if (!operand.is_integral()) {
    return Error(ErrorCode::kInvalidArgument, "unary '{}' does not work on {}", negate ? "-" : "+",
                 operand.type_name());
  }
  int64_t result = operand.as_int();
  if (negate && __builtin_sub_overflow(int64_t{0}, result, &result)) return Overflow();
  return Value::Int(result);
}

Result<Value> ApplyBinary(State& state, BinaryOperator op, const Value& left, const Value& right) {
  for (const Value* operand : {&left, &right}) {
    // "…" % undefined formats an empty text.
    if (!operand->is_undefined() || (op == BinaryOperator::kModulo && left.is_string())) continue;
    return Error(ErrorCode::kInvalidArgument, "{}", operand->undefined_reason());
  }
  if (left.is_integral() && right.is_integral()) {
    return ApplyToIntegers(op, left.as_int(), right.as_int());
  }
  if (left.is_number() && right.is_number()) {
    return ApplyToFloats(op, left.as_double(), right.as_double());
  }
  return ApplyToOthers(state, op, left, right);
}

}  // namespace hayate::text::jinja
