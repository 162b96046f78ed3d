#include "text/template/value.h"

#include <algorithm>

#include "text/template/objects.h"

namespace hayate::text::jinja {

Value Value::Undefined(std::string why) {
  return Value(Rep(UndefinedRep{std::make_shared<const std::string>(std::move(why))}));
}

Value Value::String(std::string value) {
  return Value(Rep(std::make_shared<const std::string>(std::move(value))));
}

Value Value::Markup(std::string value) {
  return Value(Rep(MarkupRep{std::make_shared<const std::string>(std::move(value))}));
}

Value Value::List(std::vector<Value> items) {
  return FromSequence({.type = SequenceType::kList, .items = std::move(items), .label = {}});
}

Value Value::Tuple(std::vector<Value> items) {
  return FromSequence({.type = SequenceType::kTuple, .items = std::move(items), .label = {}});
}

Value Value::FromSequence(Sequence sequence) {
  int depth = 0;
  for (const Value& item : sequence.items) depth = std::max(depth, item.depth());
  sequence.depth = depth + 1;
  return Value(Rep(std::make_shared<const Sequence>(std::move(sequence))));
}

Value Value::FromDict(Dict dict) {
  return Value(Rep(std::make_shared<const Dict>(std::move(dict))));
}

bool Value::truthy() const {
  switch (kind()) {
    case Kind::kNone:
    case Kind::kUndefined:
      return false;
    case Kind::kBool:
      return as_bool();
    case Kind::kInt:
      return as_int() != 0;
    case Kind::kFloat:
      return as_double() != 0.0;
    case Kind::kString:
      return !string().empty();
    case Kind::kSequence:
      return sequence().type == SequenceType::kIterator || !sequence().items.empty();
    case Kind::kDict:
      return dict().size() > 0;
    case Kind::kObject:
      return true;
  }
  return false;
}

int Value::depth() const {
  if (is_sequence()) return sequence().depth;
  if (is_dict()) return dict().depth();
  return 0;
}

std::string_view Value::type_name() const {
  switch (kind()) {
    case Kind::kNone:
      return "NoneType";
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kDict:
      return "dict";
    case Kind::kObject:
      return ObjectTypeName(object());
    case Kind::kSequence:
      break;
  }
  switch (sequence().type) {
    case SequenceType::kList:
      return "list";
    case SequenceType::kTuple:
      return "tuple";
    case SequenceType::kRange:
      return "range";
    case SequenceType::kView:
      return sequence().label;
    case SequenceType::kIterator:
      return "generator";
  }
  return "list";
}

Dict::Dict(std::initializer_list<std::pair<std::string, Value>> entries) {
  for (const auto& [key, value] : entries) Set(key, value);
}

void Dict::Set(Value key, Value value) {
  depth_ = std::max(depth_, value.depth() + 1);
  if (const size_t index = IndexOf(key); index != kNotFound) {
    entries_[index].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (entries_.size() < kIndexFrom) return;
  for (size_t i = entries_.size() == kIndexFrom ? 0 : entries_.size() - 1; i < entries_.size();
       ++i) {
    if (entries_[i].first.is_string()) string_index_.emplace(entries_[i].first.string(), i);
  }
}

size_t Dict::IndexOf(std::string_view key) const {
  if (entries_.size() >= kIndexFrom) {
    const auto it = string_index_.find(key);
    return it == string_index_.end() ? kNotFound : it->second;
  }
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].first.is_string() && entries_[i].first.string() == key) return i;
  }
  return kNotFound;
}

size_t Dict::IndexOf(const Value& key) const {
  if (key.is_string()) return IndexOf(std::string_view(key.string()));
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (ScalarEqual(entries_[i].first, key)) return i;
  }
  return kNotFound;
}

const Value* Dict::Find(std::string_view key) const {
  const size_t index = IndexOf(key);
  return index == kNotFound ? nullptr : &entries_[index].second;
}

const Value* Dict::Find(const Value& key) const {
  const size_t index = IndexOf(key);
  return index == kNotFound ? nullptr : &entries_[index].second;
}

bool IsScalar(const Value& value) {
  return value.is_string() || value.is_number() || value.is_none();
}

bool IsHashable(const Value& value) {
  if (value.is_dict()) return false;
  if (!value.is_sequence()) return true;
  const SequenceType type = value.sequence().type;
  return type != SequenceType::kList && type != SequenceType::kView;
}

bool ScalarEqual(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return a.string() == b.string();
  if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  return a.is_none() && b.is_none();
}

}  // namespace hayate::text::jinja
