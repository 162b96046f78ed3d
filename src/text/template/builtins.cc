#include "text/template/builtins.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/template/access.h"
#include "text/template/arguments.h"
#include "text/template/objects.h"
#include "text/template/printing.h"

namespace hayate::text::jinja {
namespace {

// Number of values in range(start, stop, step); step is not zero.
int64_t RangeLength(int64_t start, int64_t stop, int64_t step) {
  if (step > 0 ? start >= stop : start <= stop) return 0;
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride =
      step > 0 ? static_cast<uint64_t>(step) : uint64_t{0} - static_cast<uint64_t>(step);
  const uint64_t count = (distance - 1) / stride + 1;
  return static_cast<int64_t>(std::min<uint64_t>(count, INT64_MAX));
}

Result<Value> Range(State& state, const Value&, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<3>(arguments, {"start", "stop", "step"}));
  RETURN_IF_ERROR(RequiredArgument(bound[0], "stop").status());
  ASSIGN_OR_RETURN(int64_t start, IntegerArgument(bound[0], 0, "start"));
  int64_t stop = start;
  if (bound[1] == nullptr) {
    start = 0;
  } else {
    ASSIGN_OR_RETURN(stop, IntegerArgument(bound[1], 0, "stop"));
  }
  ASSIGN_OR_RETURN(const int64_t step, IntegerArgument(bound[2], 1, "step"));
  if (step == 0) return Error(ErrorCode::kInvalidArgument, "the step cannot be zero");
  const int64_t length = RangeLength(start, stop, step);
  if (length > kMaxRange) {
    return Error(ErrorCode::kInvalidArgument, "a range has at most {} numbers", kMaxRange);
  }
  Sequence sequence{.type = SequenceType::kRange,
                    .items = {},
                    .label = step == 1 ? fmt::format("range({}, {})", start, stop)
                                       : fmt::format("range({}, {}, {})", start, stop, step)};
  sequence.items.reserve(static_cast<size_t>(length));
  for (int64_t i = 0; i < length; ++i) sequence.items.push_back(Value::Int(start + i * step));
  return state.NewSequence(std::move(sequence));
}

// The entries of a dict, or the pairs of a list of them, and then the keyword arguments.
Result<Dict> CollectEntries(State& state, const Arguments& arguments) {
  Dict dict;
  if (arguments.positional.size() > 1) {
    return Error(ErrorCode::kInvalidArgument, "takes at most 1 positional argument");
  }
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.is_dict()) {
      dict = source.dict();
    } else {
      ASSIGN_OR_RETURN(const auto pairs, Iterate(state, source));
      for (const Value& pair : pairs->items) {
        ASSIGN_OR_RETURN(const auto parts, Iterate(state, pair));
        if (parts->items.size() != 2 || !IsScalar(parts->items[0])) {
          return Error(ErrorCode::kInvalidArgument, "needs pairs of a scalar key and a value");
        }
        // Keys that are no text are looked up one by one.
        RETURN_IF_ERROR(state.Step(1 + static_cast<int64_t>(dict.size() / 16)));
        dict.Set(parts->items[0], parts->items[1]);
      }
    }
  }
  for (const auto& [key, value] : arguments.keyword) dict.Set(std::string(key), value);
  return dict;
}

Result<Value> MakeDict(State& state, const Value&, const Arguments& arguments) {
  ASSIGN_OR_RETURN(Dict dict, CollectEntries(state, arguments));
  return state.NewDict(std::move(dict));
}

Result<Value> MakeNamespace(State& state, const Value&, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Dict dict, CollectEntries(state, arguments));
  Namespace space;
  for (const auto& [key, value] : dict.entries()) {
    if (key.is_string()) space.attributes.emplace_back(key.string(), value);
  }
  return state.NewObject({std::move(space)});
}

Result<Value> MakeCycler(State& state, const Value&, const Arguments& arguments) {
  if (arguments.positional.empty()) {
    return Error(ErrorCode::kInvalidArgument, "needs values to cycle through");
  }
  return state.NewObject({Cycler{arguments.positional}});
}

Result<Value> MakeJoiner(State& state, const Value&, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<1>(arguments, {"sep"}));
  ASSIGN_OR_RETURN(const std::string_view separator, TextArgument(bound[0], ", ", "sep"));
  return state.NewObject({Joiner{std::string(separator)}});
}

Result<Value> StrftimeNow(State& state, const Value&, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<1>(arguments, {"format"}));
  ASSIGN_OR_RETURN(const Value* format_value, RequiredArgument(bound[0], "format"));
  ASSIGN_OR_RETURN(const std::string_view format_view, TextArgument(format_value, "", "format"));
  const std::string format(format_view);
  if (format.empty()) return Value::String("");
  char buffer[512];
  const size_t size = std::strftime(buffer, sizeof(buffer), format.c_str(), &state.options().now);
  if (size == 0) return Error(ErrorCode::kInvalidArgument, "the formatted time is too long");
  return state.NewString(std::string(buffer, size));
}

constexpr std::array<NamedFunction, 7> kGlobals = {{
    {"cycler", MakeCycler},
    {"dict", MakeDict},
    {"joiner", MakeJoiner},
    {"namespace", MakeNamespace},
    {"raise_exception", RaiseException},
    {"range", Range},
    {"strftime_now", StrftimeNow},
}};

}  // namespace

Result<Value> RaiseException(State& state, const Value&, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<1>(arguments, {"message"}));
  ASSIGN_OR_RETURN(const Value* message, RequiredArgument(bound[0], "message"));
  ASSIGN_OR_RETURN(std::string text, ToText(state, *message));
  return Status(ErrorCode::kInvalidArgument, std::move(text));
}

const NamedFunction* FindGlobalFunction(std::string_view name) {
  const auto it = std::find_if(kGlobals.begin(), kGlobals.end(),
                               [name](const NamedFunction& entry) { return entry.name == name; });
  return it == kGlobals.end() ? nullptr : &*it;
}

}  // namespace hayate::text::jinja
