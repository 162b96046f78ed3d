#include "text/template/methods.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/template/arguments.h"
#include "text/template/comparison.h"
#include "text/template/objects.h"

namespace hayate::text::jinja {
namespace {

Result<Value> NewView(State& state, std::vector<Value> items, std::string label) {
  return state.NewSequence({SequenceType::kView, std::move(items), std::move(label)});
}

Result<Value> DictItems(State& state, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  RETURN_IF_ERROR(state.Charge(self.dict().size() * 128));
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries()) {
    ASSIGN_OR_RETURN(Value pair, state.NewTuple({key, value}));
    items.push_back(std::move(pair));
  }
  return NewView(state, std::move(items), "dict_items");
}

Result<Value> DictKeys(State& state, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries()) items.push_back(key);
  return NewView(state, std::move(items), "dict_keys");
}

Result<Value> DictValues(State& state, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict().entries()) items.push_back(value);
  return NewView(state, std::move(items), "dict_values");
}

Result<Value> DictGet(State&, const Value& self, const Arguments& arguments) {
  if (!arguments.keyword.empty()) {
    return Error(ErrorCode::kInvalidArgument, "takes no keyword arguments");
  }
  ASSIGN_OR_RETURN(const auto bound, Bind<2>(arguments, {"key", "default"}));
  ASSIGN_OR_RETURN(const Value* key, RequiredArgument(bound[0], "key"));
  if (!IsHashable(*key)) {
    return Error(ErrorCode::kInvalidArgument, "{} cannot be a dict's key", key->type_name());
  }
  if (const Value* found = self.dict().Find(*key)) return *found;
  return bound[1] == nullptr ? Value::None() : *bound[1];
}

// As values are immutable, a copy is the value itself.
Result<Value> Copy(State&, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  return self;
}

Result<Value> ListCount(State& state, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<1>(arguments, {"value"}));
  ASSIGN_OR_RETURN(const Value* wanted, RequiredArgument(bound[0], "value"));
  int64_t count = 0;
  for (const Value& item : self.sequence().items) {
    ASSIGN_OR_RETURN(const bool equal, Equal(state, item, *wanted));
    count += equal ? 1 : 0;
  }
  return Value::Int(count);
}

Result<Value> ListIndex(State& state, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<1>(arguments, {"value"}));
  ASSIGN_OR_RETURN(const Value* wanted, RequiredArgument(bound[0], "value"));
  for (size_t i = 0; i < self.sequence().items.size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal, Equal(state, self.sequence().items[i], *wanted));
    if (equal) return Value::Int(static_cast<int64_t>(i));
  }
  return Error(ErrorCode::kInvalidArgument, "the value is not in the list");
}

Result<Value> LoopCycle(State&, const Value& self, const Arguments& arguments) {
  if (arguments.positional.empty()) {
    return Error(ErrorCode::kInvalidArgument, "needs values to cycle through");
  }
  const auto index = static_cast<size_t>(self.object().As<Loop>()->index0);
  return arguments.positional[index % arguments.positional.size()];
}

Result<Value> LoopChanged(State& state, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const Value current, state.NewTuple(arguments.positional));
  Loop& loop = *self.object().As<Loop>();
  ASSIGN_OR_RETURN(const bool same, Equal(state, loop.last_changed, current));
  loop.last_changed = current;
  return Value::Bool(!same);
}

Result<Value> CyclerNext(State&, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  Cycler& cycler = *self.object().As<Cycler>();
  const Value current = cycler.items[cycler.position];
  cycler.position = (cycler.position + 1) % cycler.items.size();
  return current;
}

Result<Value> CyclerReset(State&, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  self.object().As<Cycler>()->position = 0;
  return Value::None();
}

template <size_t N>
const NamedFunction* Find(const std::array<NamedFunction, N>& table, std::string_view name) {
  const auto it = std::find_if(table.begin(), table.end(),
                               [name](const NamedFunction& entry) { return entry.name == name; });
  return it == table.end() ? nullptr : &*it;
}

constexpr std::array<NamedFunction, 5> kDictMethods = {{
    {"copy", Copy},
    {"get", DictGet},
    {"items", DictItems},
    {"keys", DictKeys},
    {"values", DictValues},
}};
constexpr std::array<NamedFunction, 3> kListMethods = {{
    {"copy", Copy},
    {"count", ListCount},
    {"index", ListIndex},
}};
constexpr std::array<NamedFunction, 2> kTupleMethods = {{
    {"count", ListCount},
    {"index", ListIndex},
}};
constexpr std::array<NamedFunction, 2> kLoopMethods = {{
    {"changed", LoopChanged},
    {"cycle", LoopCycle},
}};
constexpr std::array<NamedFunction, 2> kCyclerMethods = {{
    {"next", CyclerNext},
    {"reset", CyclerReset},
}};
constexpr std::array<std::string_view, 8> kListMutators = {"append", "clear",  "extend",  "insert",
                                                           "pop",    "remove", "reverse", "sort"};
constexpr std::array<std::string_view, 5> kDictMutators = {"clear", "pop", "popitem", "setdefault",
                                                           "update"};

template <size_t N>
bool IsIn(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

const NamedFunction* FindContainerMethod(const Value& value, std::string_view name) {
  if (value.is_dict()) return Find(kDictMethods, name);
  if (value.is_sequence()) {
    switch (value.sequence().type) {
      case SequenceType::kList:
        return Find(kListMethods, name);
      case SequenceType::kTuple:
      case SequenceType::kRange:
        return Find(kTupleMethods, name);
      case SequenceType::kView:
      case SequenceType::kIterator:
        return nullptr;
    }
  }
  if (value.is_object()) {
    if (value.object().As<Loop>() != nullptr) return Find(kLoopMethods, name);
    if (value.object().As<Cycler>() != nullptr) return Find(kCyclerMethods, name);
  }
  return nullptr;
}

const NamedFunction* FindMethod(const Value& value, std::string_view name) {
  return value.is_string() ? FindTextMethod(name) : FindContainerMethod(value, name);
}

bool IsMutator(const Value& value, std::string_view name) {
  if (value.is_dict()) return IsIn(kDictMutators, name);
  return value.is_sequence() && value.sequence().type == SequenceType::kList &&
         IsIn(kListMutators, name);
}

}  // namespace hayate::text::jinja
