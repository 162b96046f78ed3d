#include "text/template/objects.h"

namespace hayate::text::jinja {

const Value* Namespace::Find(std::string_view name) const {
  for (const auto& [key, value] : attributes) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Namespace::Set(std::string_view name, Value value) {
  for (auto& [key, old] : attributes) {
    if (key == name) {
      old = std::move(value);
      return;
    }
  }
  attributes.emplace_back(name, std::move(value));
}

std::string_view ObjectTypeName(const Object& object) {
  struct Visitor {
    std::string_view operator()(const Namespace&) const { return "Namespace"; }
    std::string_view operator()(const Loop&) const { return "LoopContext"; }
    std::string_view operator()(const Macro&) const { return "Macro"; }
    std::string_view operator()(const BoundMethod&) const { return "builtin_function_or_method"; }
    std::string_view operator()(const GlobalFunction&) const { return "function"; }
    std::string_view operator()(const Cycler&) const { return "Cycler"; }
    std::string_view operator()(const Joiner&) const { return "Joiner"; }
    std::string_view operator()(const Frame&) const { return "Frame"; }
  };
  return std::visit(Visitor{}, object.state);
}

}  // namespace hayate::text::jinja
