#include "text/detail/json_node.h"

#include "base/error.h"

namespace hayate::text {

std::optional<JsonNode> JsonNode::Member(std::string_view key) const {
  simdjson::dom::element member;
  if (value_[key].get(member) != simdjson::SUCCESS || member.is_null()) return std::nullopt;
  return JsonNode(member, place_.empty() ? std::string(key) : fmt::format("{}.{}", place_, key));
}

Result<JsonNode> JsonNode::Required(std::string_view key) const {
  if (auto member = Member(key)) return *std::move(member);
  return Invalid(fmt::format("'{}' is missing", key));
}

Result<std::vector<JsonNode>> JsonNode::Elements() const {
  simdjson::dom::array array;
  if (value_.get(array) != simdjson::SUCCESS) return Invalid("not an array");
  std::vector<JsonNode> elements;
  for (const simdjson::dom::element element : array) {
    elements.emplace_back(element, fmt::format("{}[{}]", place_, elements.size()));
  }
  return elements;
}

Result<std::string_view> JsonNode::AsString() const {
  std::string_view text;
  if (value_.get(text) != simdjson::SUCCESS) return Invalid("not a string");
  return text;
}

Result<int64_t> JsonNode::AsInt() const {
  int64_t number = 0;
  if (value_.get(number) != simdjson::SUCCESS) return Invalid("not an integer");
  return number;
}

Result<std::string_view> JsonNode::String(std::string_view key) const {
  ASSIGN_OR_RETURN(const JsonNode member, Required(key));
  return member.AsString();
}

Result<std::string_view> JsonNode::StringOr(std::string_view key, std::string_view fallback) const {
  const auto member = Member(key);
  if (!member) return fallback;
  return member->AsString();
}

Result<bool> JsonNode::BoolOr(std::string_view key, bool fallback) const {
  const auto member = Member(key);
  if (!member) return fallback;
  bool flag = false;
  if (member->value().get(flag) != simdjson::SUCCESS) return member->Invalid("not true or false");
  return flag;
}

Status JsonNode::Invalid(std::string_view message) const {
  return Error(ErrorCode::kInvalidArgument, "{}: {}", place_.empty() ? "top level" : place_,
               message);
}

Status JsonNode::Unsupported(std::string_view message) const {
  return Error(ErrorCode::kUnsupported, "{}: {}", place_.empty() ? "top level" : place_, message);
}

}  // namespace hayate::text
