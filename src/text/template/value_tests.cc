#include "text/template/value_tests.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/template/arguments.h"
#include "text/template/arithmetic.h"
#include "text/template/code_points.h"
#include "text/template/comparison.h"
#include "text/template/filters.h"
#include "text/template/objects.h"
#include "text/template/printing.h"

namespace hayate::text::jinja {
namespace {

Result<Value> OnlyArgument(const Arguments& arguments) {
  if (arguments.positional.size() + arguments.keyword.size() == 1) {
    return arguments.positional.empty() ? arguments.keyword[0].second : arguments.positional[0];
  }
  return Error(ErrorCode::kInvalidArgument, "takes 1 argument");
}

// Tests of what a value is, without arguments.
using Predicate = bool (*)(const Value& value);
template <Predicate predicate>
Result<bool> Is(State&, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  return predicate(value);
}

bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsUndefined(const Value& value) { return value.is_undefined(); }
bool IsNone(const Value& value) { return value.is_none(); }
bool IsText(const Value& value) { return value.is_string(); }
bool IsMapping(const Value& value) { return value.is_dict(); }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsInteger(const Value& value) { return value.is_int(); }
bool IsFloat(const Value& value) { return value.is_float(); }
bool IsBoolean(const Value& value) { return value.is_bool(); }
bool IsTrue(const Value& value) { return value.is_bool() && value.as_bool(); }
bool IsFalse(const Value& value) { return value.is_bool() && !value.as_bool(); }

bool IsIterable(const Value& value) {
  return value.is_string() || value.is_sequence() || value.is_dict() || value.is_undefined() ||
         (value.is_object() && value.object().As<Loop>() != nullptr);
}

// What has a length and a subscript: dicts and undefined too.
bool IsSequence(const Value& value) {
  if (value.is_sequence()) {
    const SequenceType type = value.sequence().type;
    return type != SequenceType::kView && type != SequenceType::kIterator;
  }
  return value.is_string() || value.is_dict() || value.is_undefined();
}

bool IsCallable(const Value& value) {
  if (value.is_undefined()) return true;  // calling it is an error all the same
  if (!value.is_object()) return false;
  const Object& object = value.object();
  return object.As<Macro>() != nullptr || object.As<BoundMethod>() != nullptr ||
         object.As<GlobalFunction>() != nullptr || object.As<Joiner>() != nullptr;
}

template <Comparison op>
Result<bool> Compares(State& state, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Value other, OnlyArgument(arguments));
  return ApplyComparison(state, op, value, other);
}

Result<bool> IsSameAs(State&, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Value other, OnlyArgument(arguments));
  if (value.kind() != other.kind()) return false;
  if (value.is_sequence()) return &value.sequence() == &other.sequence();
  if (value.is_dict()) return &value.dict() == &other.dict();
  if (value.is_object()) return &value.object() == &other.object();
  return ScalarEqual(value, other);
}

Result<bool> RemainderIs(State& state, const Value& value, const Value& divisor,
                         int64_t remainder) {
  ASSIGN_OR_RETURN(const Value actual, ApplyBinary(state, BinaryOperator::kModulo, value, divisor));
  return ScalarEqual(actual, Value::Int(remainder));
}

template <int64_t remainder>
Result<bool> HasParity(State& state, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  return RemainderIs(state, value, Value::Int(2), remainder);
}

Result<bool> IsDivisibleBy(State& state, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Value divisor, OnlyArgument(arguments));
  return RemainderIs(state, value, divisor, 0);
}

enum class Case { kUpper, kLower };
template <Case wanted>
Result<bool> HasCase(State& state, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  ASSIGN_OR_RETURN(const std::string text, ToText(state, value));
  bool any = false;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = CodePointAt(text, i);
    if (wanted == Case::kUpper ? IsLower(c.value) : IsUpper(c.value)) return false;
    any = any || (wanted == Case::kUpper ? IsUpper(c.value) : IsLower(c.value));
    i += c.length;
  }
  return any;
}

Result<bool> IsFilterName(State&, const Value& value, const Arguments&) {
  return value.is_string() && FindFilter(value.string()) != nullptr;
}

Result<bool> IsTestName(State&, const Value& value, const Arguments&) {
  return value.is_string() && FindTest(value.string()) != nullptr;
}

struct NamedTest {
  std::string_view name;
  TestFunction test;
};

constexpr std::array<NamedTest, 38> kTests = {{
    {"!=", Compares<Comparison::kNotEqual>},
    {"<", Compares<Comparison::kLess>},
    {"<=", Compares<Comparison::kLessEqual>},
    {"==", Compares<Comparison::kEqual>},
    {">", Compares<Comparison::kGreater>},
    {">=", Compares<Comparison::kGreaterEqual>},
    {"boolean", Is<IsBoolean>},
    {"callable", Is<IsCallable>},
    {"defined", Is<IsDefined>},
    {"divisibleby", IsDivisibleBy},
    {"eq", Compares<Comparison::kEqual>},
    {"equalto", Compares<Comparison::kEqual>},
    {"even", HasParity<0>},
    {"false", Is<IsFalse>},
    {"filter", IsFilterName},
    {"float", Is<IsFloat>},
    {"ge", Compares<Comparison::kGreaterEqual>},
    {"greaterthan", Compares<Comparison::kGreater>},
    {"gt", Compares<Comparison::kGreater>},
    {"in", Compares<Comparison::kIn>},
    {"integer", Is<IsInteger>},
    {"iterable", Is<IsIterable>},
    {"le", Compares<Comparison::kLessEqual>},
    {"lessthan", Compares<Comparison::kLess>},
    {"lower", HasCase<Case::kLower>},
    {"lt", Compares<Comparison::kLess>},
    {"mapping", Is<IsMapping>},
    {"ne", Compares<Comparison::kNotEqual>},
    {"none", Is<IsNone>},
    {"number", Is<IsNumber>},
    {"odd", HasParity<1>},
    {"sameas", IsSameAs},
    {"sequence", Is<IsSequence>},
    {"string", Is<IsText>},
    {"test", IsTestName},
    {"true", Is<IsTrue>},
    {"undefined", Is<IsUndefined>},
    {"upper", HasCase<Case::kUpper>},
}};

}  // namespace

TestFunction FindTest(std::string_view name) {
  const auto it = std::find_if(kTests.begin(), kTests.end(),
                               [name](const NamedTest& entry) { return entry.name == name; });
  return it == kTests.end() ? nullptr : it->test;
}

Result<bool> ApplyTest(State& state, std::string_view name, const Value& value,
                       const Arguments& arguments) {
  const TestFunction test = FindTest(name);
  if (test == nullptr) return Error(ErrorCode::kInvalidArgument, "there is no test '{}'", name);
  RETURN_IF_ERROR(state.Step());
  return test(state, value, arguments);
}

}  // namespace hayate::text::jinja
