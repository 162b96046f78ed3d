#include "text/template/access.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/error.h"
#include "text/template/code_points.h"
#include "text/template/methods.h"
#include "text/template/objects.h"
#include "text/template/printing.h"

namespace hayate::text::jinja {
namespace {

Status UndefinedError(const Value& value) {
  return Error(ErrorCode::kInvalidArgument, "{}", value.undefined_reason());
}

// What the look-ups below return where there is nothing.
Value Absent() { return Value::Undefined(""); }
bool IsAbsent(const Value& value) {
  return value.is_undefined() && value.undefined_reason().empty();
}

Value LoopAttribute(const Loop& loop, std::string_view name) {
  const auto length = static_cast<int64_t>(loop.items->items.size());
  const auto item_at = [&](int64_t index, const char* why) {
    return index >= 0 && index < length ? loop.items->items[static_cast<size_t>(index)]
                                        : Value::Undefined(why);
  };
  if (name == "index") return Value::Int(loop.index0 + 1);
  if (name == "index0") return Value::Int(loop.index0);
  if (name == "revindex") return Value::Int(length - loop.index0);
  if (name == "revindex0") return Value::Int(length - loop.index0 - 1);
  if (name == "first") return Value::Bool(loop.index0 == 0);
  if (name == "last") return Value::Bool(loop.index0 + 1 == length);
  if (name == "length") return Value::Int(length);
  if (name == "depth") return Value::Int(loop.depth0 + 1);
  if (name == "depth0") return Value::Int(loop.depth0);
  if (name == "previtem") return item_at(loop.index0 - 1, "there is no previous item");
  if (name == "nextitem") return item_at(loop.index0 + 1, "there is no next item");
  return Absent();
}

// Attributes that are data, not methods.
Value DataAttribute(const Value& value, std::string_view name) {
  if (!value.is_object()) return Absent();
  if (const Namespace* space = value.object().As<Namespace>()) {
    const Value* found = space->Find(name);
    return found == nullptr ? Absent() : *found;
  }
  if (const Loop* loop = value.object().As<Loop>()) return LoopAttribute(*loop, name);
  const Macro* macro = value.object().As<Macro>();
  if (macro != nullptr && name == "name") return Value::String(macro->definition->name);
  return Absent();
}

// A method or data attribute.
Result<Value> OwnAttribute(State& state, const Value& value, std::string_view name) {
  if (const NamedFunction* method = FindMethod(value, name)) {
    return state.NewObject({BoundMethod{value, method}});
  }
  if (IsMutator(value, name)) {
    return Value::Undefined(
        fmt::format("'{}' would change a {}, which a template may not", name, value.type_name()));
  }
  return DataAttribute(value, name);
}

bool IsIndexable(SequenceType type) {
  return type == SequenceType::kList || type == SequenceType::kTuple ||
         type == SequenceType::kRange;
}

// Python's negative indices count from the end; nothing when out of range.
std::optional<size_t> ResolveIndex(int64_t index, size_t length) {
  if (index < 0) index += static_cast<int64_t>(length);
  if (index < 0 || index >= static_cast<int64_t>(length)) return std::nullopt;
  return static_cast<size_t>(index);
}

Result<Value> ItemAt(State& state, const Value& object, const Value& key) {
  if (object.is_dict()) {
    const Value* found = object.dict().Find(key);
    return found == nullptr ? Absent() : *found;
  }
  if (!key.is_integral()) return Absent();
  if (object.is_sequence() && IsIndexable(object.sequence().type)) {
    const std::vector<Value>& items = object.sequence().items;
    const std::optional<size_t> index = ResolveIndex(key.as_int(), items.size());
    return index ? items[*index] : Absent();
  }
  if (!object.is_string()) return Absent();
  const std::string& text = object.string();
  RETURN_IF_ERROR(state.Step(static_cast<int64_t>(text.size() / 128)));
  const std::optional<size_t> index = ResolveIndex(key.as_int(), Length(text));
  if (!index) return Absent();
  const size_t offset = ByteOffset(text, *index);
  return Value::String(text.substr(offset, CodePointAt(text, offset).length));
}

struct SliceBounds {
  int64_t start, stop, step;
};

Result<int64_t> SliceInteger(const Value* value, int64_t missing) {
  if (value == nullptr || value->is_none()) return missing;
  if (value->is_integral()) return value->as_int();
  if (value->is_undefined()) return UndefinedError(*value);
  return Error(ErrorCode::kInvalidArgument, "a slice index must be an integer, not {}",
               value->type_name());
}

Result<SliceBounds> ResolveSlice(int64_t length, const Value* start, const Value* stop,
                                 const Value* step) {
  SliceBounds bounds{};
  ASSIGN_OR_RETURN(bounds.step, SliceInteger(step, 1));
  if (bounds.step == 0) return Error(ErrorCode::kInvalidArgument, "a slice's step cannot be zero");
  bounds.step = std::clamp<int64_t>(bounds.step, -length - 1, length + 1);
  const bool backward = bounds.step < 0;
  const int64_t lowest = backward ? -1 : 0, highest = backward ? length - 1 : length;
  const auto resolve = [&](int64_t index) {
    // Clamped first: -index of the smallest integer would overflow.
    index = std::clamp<int64_t>(index, -length - 1, length + 1);
    if (index < 0) index += length;
    return std::clamp(index, lowest, highest);
  };
  ASSIGN_OR_RETURN(const int64_t first, SliceInteger(start, 0));
  ASSIGN_OR_RETURN(const int64_t last, SliceInteger(stop, 0));
  const bool has_start = start != nullptr && !start->is_none();
  const bool has_stop = stop != nullptr && !stop->is_none();
  bounds.start = has_start ? resolve(first) : backward ? highest : lowest;
  bounds.stop = has_stop ? resolve(last) : backward ? lowest : highest;
  return bounds;
}

template <typename Visit>
void ForEachIndex(const SliceBounds& bounds, Visit visit) {
  for (int64_t i = bounds.start; bounds.step > 0 ? i < bounds.stop : i > bounds.stop;
       i += bounds.step) {
    visit(static_cast<size_t>(i));
  }
}

Result<Value> SliceText(State& state, const std::string& text, const Value* start,
                        const Value* stop, const Value* step) {
  RETURN_IF_ERROR(state.Step(static_cast<int64_t>(text.size() / 64)));
  const size_t length = Length(text);
  ASSIGN_OR_RETURN(const SliceBounds bounds,
                   ResolveSlice(static_cast<int64_t>(length), start, stop, step));
  if (bounds.step == 1) {
    if (bounds.stop <= bounds.start) return Value::String("");
    const bool ascii = length == text.size();
    const auto first = static_cast<size_t>(bounds.start);
    const auto count = static_cast<size_t>(bounds.stop - bounds.start);
    const size_t begin = ascii ? first : ByteOffset(text, first);
    const size_t bytes = ascii ? count : ByteOffset(std::string_view(text).substr(begin), count);
    return state.NewString(text.substr(begin, bytes));
  }
  RETURN_IF_ERROR(state.Charge(length * sizeof(std::string_view)));
  const std::vector<std::string_view> characters = SplitCodePoints(text);
  std::string out;
  ForEachIndex(bounds, [&](size_t i) { out += characters[i]; });
  return state.NewString(std::move(out));
}

}  // namespace

Result<Value> GetAttribute(State& state, const Value& object, std::string_view name) {
  if (object.is_undefined()) return UndefinedError(object);
  ASSIGN_OR_RETURN(Value own, OwnAttribute(state, object, name));
  if (!IsAbsent(own)) return own;
  if (object.is_dict()) {
    if (const Value* found = object.dict().Find(name)) return *found;
  }
  return Value::Undefined(fmt::format("{} has no attribute '{}'", object.type_name(), name));
}

Result<Value> GetItem(State& state, const Value& object, const Value& key) {
  if (object.is_undefined()) return UndefinedError(object);
  ASSIGN_OR_RETURN(Value item, ItemAt(state, object, key));
  if (!IsAbsent(item)) return item;
  if (key.is_string()) {
    ASSIGN_OR_RETURN(Value own, OwnAttribute(state, object, key.string()));
    if (!IsAbsent(own)) return own;
  }
  std::string shown;
  RETURN_IF_ERROR(AppendRepr(state, key, shown));
  return Value::Undefined(fmt::format("{} has no element {}", object.type_name(), shown));
}

Result<Value> GetSlice(State& state, const Value& object, const Value* start, const Value* stop,
                       const Value* step) {
  if (object.is_undefined()) return UndefinedError(object);
  if (object.is_string()) return SliceText(state, object.string(), start, stop, step);
  if (!object.is_sequence() || !IsIndexable(object.sequence().type)) {
    return Error(ErrorCode::kInvalidArgument, "{} cannot be sliced", object.type_name());
  }
  const Sequence& sequence = object.sequence();
  ASSIGN_OR_RETURN(const SliceBounds bounds,
                   ResolveSlice(static_cast<int64_t>(sequence.items.size()), start, stop, step));
  // A range's slice is no longer lazy, so it may as well be a list.
  const bool is_tuple = sequence.type == SequenceType::kTuple;
  Sequence slice{
      .type = is_tuple ? SequenceType::kTuple : SequenceType::kList, .items = {}, .label = {}};
  ForEachIndex(bounds, [&](size_t i) { slice.items.push_back(sequence.items[i]); });
  return state.NewSequence(std::move(slice));
}

Result<std::shared_ptr<const Sequence>> Iterate(State& state, const Value& value) {
  if (value.is_sequence()) {
    RETURN_IF_ERROR(state.Step(static_cast<int64_t>(value.sequence().items.size() / 16)));
    return value.sequence_ref();
  }
  std::vector<Value> items;
  if (value.is_dict()) {
    for (const auto& [key, unused] : value.dict().entries()) items.push_back(key);
  } else if (value.is_string()) {
    RETURN_IF_ERROR(state.Charge(value.string().size() * (sizeof(Value) + 48)));
    for (const std::string_view character : SplitCodePoints(value.string())) {
      items.push_back(Value::String(std::string(character)));
    }
  } else if (!value.is_undefined()) {
    return Error(ErrorCode::kInvalidArgument, "{} cannot be iterated over", value.type_name());
  }
  ASSIGN_OR_RETURN(const Value list, state.NewList(std::move(items)));
  return list.sequence_ref();
}

Result<AttributePath> AttributePath::Parse(const Value& attribute) {
  AttributePath path;
  if (!attribute.is_string()) {
    path.parts_.push_back(attribute);
    return path;
  }
  std::string_view rest = attribute.string();
  while (true) {
    const std::string_view part = rest.substr(0, rest.find('.'));
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_index = error == std::errc() && end == part.data() + part.size() && index >= 0;
    path.parts_.push_back(is_index ? Value::Int(index) : Value::String(std::string(part)));
    if (part.size() == rest.size()) return path;
    rest.remove_prefix(part.size() + 1);
  }
}

Result<Value> AttributePath::Get(State& state, const Value& value) const {
  Value current = value;
  for (const Value& part : parts_) {
    ASSIGN_OR_RETURN(current, GetItem(state, current, part));
  }
  return current;
}

}  // namespace hayate::text::jinja
