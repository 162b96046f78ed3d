#include "text/template/sort_key.h"

#include "text/template/arguments.h"
#include "text/template/code_points.h"

namespace hayate::text::jinja {

Result<SortKey> SortKey::ByAttribute(const Value* case_sensitive, const Value* attribute) {
  SortKey key(TruthArgument(case_sensitive, false) ? CaseRule::kSensitive : CaseRule::kIgnored);
  if (attribute == nullptr || attribute->is_none()) return key;
  ASSIGN_OR_RETURN(AttributePath path, AttributePath::Parse(*attribute));
  key.paths_.push_back(std::move(path));
  return key;
}

Result<SortKey> SortKey::ByAttributes(const Value* case_sensitive, const Value* attribute) {
  if (attribute == nullptr || !attribute->is_string()) {
    ASSIGN_OR_RETURN(SortKey key, ByAttribute(case_sensitive, attribute));
    key.makes_lists_ = true;
    return key;
  }
  SortKey key(TruthArgument(case_sensitive, false) ? CaseRule::kSensitive : CaseRule::kIgnored);
  key.makes_lists_ = true;
  std::string_view rest = attribute->string();
  while (true) {
    const std::string_view name = rest.substr(0, rest.find(','));
    ASSIGN_OR_RETURN(AttributePath path, AttributePath::Parse(Value::String(std::string(name))));
    key.paths_.push_back(std::move(path));
    if (name.size() == rest.size()) return key;
    rest.remove_prefix(name.size() + 1);
  }
}

Result<Value> SortKey::Fold(State& state, Value value) const {
  if (case_rule_ == CaseRule::kSensitive || !value.is_string()) return value;
  return state.NewString(Lower(value.string()));
}

Result<Value> SortKey::Of(State& state, const Value& item) const {
  RETURN_IF_ERROR(state.Step());
  std::vector<Value> parts;
  for (const AttributePath& path : paths_) {
    ASSIGN_OR_RETURN(Value part, path.Get(state, item));
    parts.push_back(std::move(part));
  }
  if (paths_.empty()) parts.push_back(item);
  for (Value& part : parts) {
    ASSIGN_OR_RETURN(part, Fold(state, std::move(part)));
  }
  if (!makes_lists_) return std::move(parts[0]);
  return state.NewList(std::move(parts));
}

Result<std::vector<Value>> SortKey::OfAll(State& state, const std::vector<Value>& items) const {
  std::vector<Value> keys;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(Value key, Of(state, item));
    keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace hayate::text::jinja
