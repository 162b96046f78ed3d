#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/template/access.h"
#include "text/template/arguments.h"
#include "text/template/code_points.h"
#include "text/template/comparison.h"
#include "text/template/filters.h"
#include "text/template/printing.h"
#include "text/template/sort_key.h"

namespace hayate::text::jinja {
namespace {

Result<Value> NewIterator(State& state, std::vector<Value> items) {
  return state.NewSequence({SequenceType::kIterator, std::move(items), ""});
}

Result<Value> Length(State& state, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  size_t length = 0;
  if (value.is_string()) {
    RETURN_IF_ERROR(state.Step(static_cast<int64_t>(value.string().size() / 256)));
    length = jinja::Length(value.string());
  } else if (value.is_dict()) {
    length = value.dict().size();
  } else if (value.is_sequence() && value.sequence().type != SequenceType::kIterator) {
    length = value.sequence().items.size();
  } else if (!value.is_undefined()) {
    return Error(ErrorCode::kInvalidArgument, "{} has no length", value.type_name());
  }
  return Value::Int(static_cast<int64_t>(length));
}

Result<Value> First(State& state, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  if (value.is_string() && !value.string().empty()) {
    return Value::String(value.string().substr(0, CodePointAt(value.string(), 0).length));
  }
  ASSIGN_OR_RETURN(const auto items, Iterate(state, value));
  if (items->items.empty()) return Value::Undefined("an empty sequence has no first item");
  return items->items.front();
}

Result<Value> Last(State& state, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  if (value.is_sequence() && value.sequence().type == SequenceType::kIterator) {
    return Error(ErrorCode::kInvalidArgument, "an iterator has no last item; use |list first");
  }
  ASSIGN_OR_RETURN(const auto items, Iterate(state, value));
  if (items->items.empty()) return Value::Undefined("an empty sequence has no last item");
  return items->items.back();
}

Result<Value> ToList(State& state, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  ASSIGN_OR_RETURN(const auto items, Iterate(state, value));
  return state.NewList(items->items);
}

Result<Value> Reverse(State& state, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  ASSIGN_OR_RETURN(const auto items, Iterate(state, value));
  if (value.is_string()) {
    std::string out;
    for (auto it = items->items.rbegin(); it != items->items.rend(); ++it) out += it->string();
    return state.NewString(std::move(out));
  }
  return NewIterator(state, {items->items.rbegin(), items->items.rend()});
}

Result<Value> Join(State& state, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<2>(arguments, {"d", "attribute"}));
  std::string separator;
  if (bound[0] != nullptr) {
    ASSIGN_OR_RETURN(separator, ToText(state, *bound[0]));
  }
  const bool whole = bound[1] == nullptr || bound[1]->is_none();
  ASSIGN_OR_RETURN(const AttributePath path,
                   AttributePath::Parse(whole ? Value::None() : *bound[1]));
  ASSIGN_OR_RETURN(const auto items, Iterate(state, value));
  std::string out;
  bool first = true;
  for (const Value& item : items->items) {
    if (!first) out += separator;
    first = false;
    Value part = item;
    if (!whole) {
      ASSIGN_OR_RETURN(part, path.Get(state, item));
    }
    RETURN_IF_ERROR(AppendText(state, part, out));
    RETURN_IF_ERROR(state.Step());
    RETURN_IF_ERROR(state.CheckStringSize(out.size()));
  }
  return state.NewString(std::move(out));
}

Result<Value> Default(State&, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<2>(arguments, {"default_value", "boolean"}));
  const bool replaces = value.is_undefined() || (TruthArgument(bound[1], false) && !value.truthy());
  if (!replaces) return value;
  return bound[0] == nullptr ? Value::String("") : *bound[0];
}

Result<Value> Items(State& state, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  std::vector<Value> pairs;
  if (value.is_dict()) {
    for (const auto& [key, item] : value.dict().entries()) {
      ASSIGN_OR_RETURN(Value pair, state.NewTuple({key, item}));
      pairs.push_back(std::move(pair));
    }
  } else if (!value.is_undefined()) {
    return Error(ErrorCode::kInvalidArgument, "only a dict has items, not {}", value.type_name());
  }
  return NewIterator(state, std::move(pairs));
}

SortDirection DirectionOf(const Value* reverse) {
  return TruthArgument(reverse, false) ? SortDirection::kDescending : SortDirection::kAscending;
}

Result<Value> DictSort(State& state, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<3>(arguments, {"case_sensitive", "by", "reverse"}));
  ASSIGN_OR_RETURN(const std::string_view by, TextArgument(bound[1], "key", "by"));
  if (by != "key" && by != "value") {
    return Error(ErrorCode::kInvalidArgument, "'by' must be key or value");
  }
  if (!value.is_dict()) {
    return Error(ErrorCode::kInvalidArgument, "sorts dicts only, not {}", value.type_name());
  }
  const SortKey sort_key(TruthArgument(bound[0], false) ? CaseRule::kSensitive
                                                        : CaseRule::kIgnored);
  std::vector<Value> keys;
  for (const auto& [key, item] : value.dict().entries()) {
    ASSIGN_OR_RETURN(Value sort_by, sort_key.Of(state, by == "key" ? key : item));
    keys.push_back(std::move(sort_by));
  }
  ASSIGN_OR_RETURN(const auto order, SortedOrder(state, keys, DirectionOf(bound[2])));
  std::vector<Value> pairs;
  for (const size_t i : order) {
    const auto& [key, item] = value.dict().entries()[i];
    ASSIGN_OR_RETURN(Value pair, state.NewTuple({key, item}));
    pairs.push_back(std::move(pair));
  }
  return state.NewList(std::move(pairs));
}

Result<Value> Sort(State& state, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   Bind<3>(arguments, {"reverse", "case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const SortKey sort_key, SortKey::ByAttributes(bound[1], bound[2]));
  ASSIGN_OR_RETURN(const auto items, Iterate(state, value));
  ASSIGN_OR_RETURN(const std::vector<Value> keys, sort_key.OfAll(state, items->items));
  ASSIGN_OR_RETURN(const auto order, SortedOrder(state, keys, DirectionOf(bound[0])));
  std::vector<Value> sorted;
  for (const size_t i : order) sorted.push_back(items->items[i]);
  return state.NewList(std::move(sorted));
}

template <SortDirection direction>
Result<Value> Extreme(State& state, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<2>(arguments, {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const SortKey sort_key, SortKey::ByAttribute(bound[0], bound[1]));
  ASSIGN_OR_RETURN(const auto items, Iterate(state, value));
  if (items->items.empty()) return Value::Undefined("an empty sequence has no smallest or largest");
  ASSIGN_OR_RETURN(const std::vector<Value> keys, sort_key.OfAll(state, items->items));
  size_t best = 0;
  for (size_t i = 1; i < keys.size(); ++i) {
    ASSIGN_OR_RETURN(const bool better, direction == SortDirection::kAscending
                                            ? Less(state, keys[i], keys[best])
                                            : Less(state, keys[best], keys[i]));
    if (better) best = i;
  }
  return items->items[best];
}

Result<Value> Unique(State& state, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<2>(arguments, {"case_sensitive", "attribute"}));
  ASSIGN_OR_RETURN(const SortKey sort_key, SortKey::ByAttribute(bound[0], bound[1]));
  ASSIGN_OR_RETURN(const auto items, Iterate(state, value));
  ASSIGN_OR_RETURN(const std::vector<Value> keys, sort_key.OfAll(state, items->items));
  std::vector<Value> unique;
  Dict seen;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!IsScalar(keys[i])) {
      return Error(ErrorCode::kInvalidArgument, "compares scalars only, not {}",
                   keys[i].type_name());
    }
    if (!keys[i].is_string()) RETURN_IF_ERROR(state.Step(static_cast<int64_t>(seen.size() / 8)));
    if (seen.Find(keys[i]) != nullptr) continue;
    seen.Set(keys[i], Value::None());
    unique.push_back(items->items[i]);
  }
  return NewIterator(state, std::move(unique));
}

Result<Value> Batch(State& state, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<2>(arguments, {"linecount", "fill_with"}));
  RETURN_IF_ERROR(RequiredArgument(bound[0], "linecount").status());
  ASSIGN_OR_RETURN(const int64_t size, IntegerArgument(bound[0], 0, "linecount"));
  if (size <= 0 || size > kMaxRange) {
    return Error(ErrorCode::kInvalidArgument, "'linecount' must be 1 to {}", kMaxRange);
  }
  ASSIGN_OR_RETURN(const auto items, Iterate(state, value));
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (size_t i = 0; i < items->items.size(); ++i) {
    batch.push_back(items->items[i]);
    const bool last = i + 1 == items->items.size();
    if (static_cast<int64_t>(batch.size()) < size && !last) continue;
    if (bound[1] != nullptr && !bound[1]->is_none()) {
      batch.resize(static_cast<size_t>(size), *bound[1]);
    }
    ASSIGN_OR_RETURN(Value list, state.NewList(std::exchange(batch, {})));
    batches.push_back(std::move(list));
  }
  return NewIterator(state, std::move(batches));
}

constexpr std::array<NamedFunction, 16> kFilters = {{
    {"batch", Batch},
    {"count", Length},
    {"d", Default},
    {"default", Default},
    {"dictsort", DictSort},
    {"first", First},
    {"items", Items},
    {"join", Join},
    {"last", Last},
    {"length", Length},
    {"list", ToList},
    {"max", Extreme<SortDirection::kDescending>},
    {"min", Extreme<SortDirection::kAscending>},
    {"reverse", Reverse},
    {"sort", Sort},
    {"unique", Unique},
}};

}  // namespace

std::span<const NamedFunction> SequenceFilters() { return kFilters; }

}  // namespace hayate::text::jinja
