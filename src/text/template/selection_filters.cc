#include <array>

#include "base/error.h"
#include "text/template/access.h"
#include "text/template/arguments.h"
#include "text/template/filters.h"
#include "text/template/value_tests.h"

namespace hayate::text::jinja {
namespace {

Result<Value> NewIterator(State& state, std::vector<Value> items) {
  return state.NewSequence({SequenceType::kIterator, std::move(items), ""});
}

// What these filters walk: nothing where the input is false (None, 0), as jinja2 has it.
Result<std::shared_ptr<const Sequence>> Walk(State& state, const Value& value) {
  if (!value.truthy()) return std::make_shared<const Sequence>();
  return Iterate(state, value);
}

// The arguments after the first `count` positional ones.
Arguments After(const Arguments& arguments, size_t count) {
  const auto begin = arguments.positional.begin() + static_cast<ptrdiff_t>(count);
  return {.positional = {begin, arguments.positional.end()}, .keyword = arguments.keyword};
}

Result<std::string> NameArgument(const Arguments& arguments, size_t index, std::string_view what) {
  if (index < arguments.positional.size() && arguments.positional[index].is_string()) {
    return arguments.positional[index].string();
  }
  return Error(ErrorCode::kInvalidArgument, "needs the name of a {}", what);
}

// map(attribute='name', default=…)
Result<Value> MapAttribute(State& state, const Sequence& items, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<2>(arguments, {"attribute", "default"}));
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(*bound[0]));
  std::vector<Value> mapped;
  for (const Value& item : items.items) {
    RETURN_IF_ERROR(state.Step());
    ASSIGN_OR_RETURN(Value value, path.Get(state, item));
    if (value.is_undefined() && bound[1] != nullptr) value = *bound[1];
    mapped.push_back(std::move(value));
  }
  return NewIterator(state, std::move(mapped));
}

// map('filter', arguments…)
Result<Value> Map(State& state, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto items, Walk(state, value));
  if (arguments.positional.empty()) {
    for (const auto& [name, unused] : arguments.keyword) {
      if (name == "attribute") return MapAttribute(state, *items, arguments);
    }
  }
  ASSIGN_OR_RETURN(const std::string name, NameArgument(arguments, 0, "filter"));
  const Arguments rest = After(arguments, 1);
  std::vector<Value> mapped;
  for (const Value& item : items->items) {
    ASSIGN_OR_RETURN(Value result, ApplyFilter(state, name, item, rest));
    mapped.push_back(std::move(result));
  }
  return NewIterator(state, std::move(mapped));
}

// The test at positional argument `index` with what follows it; truth where there is none.
Result<bool> Passes(State& state, const Value& value, const Arguments& arguments, size_t index) {
  if (arguments.positional.size() <= index) return value.truthy();
  ASSIGN_OR_RETURN(const std::string name, NameArgument(arguments, index, "test"));
  return ApplyTest(state, name, value, After(arguments, index + 1));
}

enum class Keep { kPassing, kFailing };

template <Keep keep>
Result<Value> Select(State& state, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto items, Walk(state, value));
  std::vector<Value> kept;
  for (const Value& item : items->items) {
    RETURN_IF_ERROR(state.Step());
    ASSIGN_OR_RETURN(const bool passes, Passes(state, item, arguments, 0));
    if (passes == (keep == Keep::kPassing)) kept.push_back(item);
  }
  return NewIterator(state, std::move(kept));
}

template <Keep keep>
Result<Value> SelectAttribute(State& state, const Value& value, const Arguments& arguments) {
  if (arguments.positional.empty()) {
    return Error(ErrorCode::kInvalidArgument, "needs the name of an attribute");
  }
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::Parse(arguments.positional[0]));
  ASSIGN_OR_RETURN(const auto items, Walk(state, value));
  std::vector<Value> kept;
  for (const Value& item : items->items) {
    RETURN_IF_ERROR(state.Step());
    ASSIGN_OR_RETURN(const Value attribute, path.Get(state, item));
    ASSIGN_OR_RETURN(const bool passes, Passes(state, attribute, arguments, 1));
    if (passes == (keep == Keep::kPassing)) kept.push_back(item);
  }
  return NewIterator(state, std::move(kept));
}

constexpr std::array<NamedFunction, 5> kFilters = {{
    {"map", Map},
    {"reject", Select<Keep::kFailing>},
    {"rejectattr", SelectAttribute<Keep::kFailing>},
    {"select", Select<Keep::kPassing>},
    {"selectattr", SelectAttribute<Keep::kPassing>},
}};

}  // namespace

std::span<const NamedFunction> SelectionFilters() { return kFilters; }

}  // namespace hayate::text::jinja
