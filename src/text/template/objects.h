#pragma once
// The run-time objects of one rendering: scopes, and everything a template can hold that is no
// data. All live in the State and refer to each other by plain pointers, so cycles cost nothing.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/template/ast.h"
#include "text/template/state.h"
#include "text/template/value.h"

namespace hayate::text::jinja {

// The variables of one scope: the template, a macro call, or one turn of a loop.
struct Frame {
  Frame* parent = nullptr;
  std::vector<std::pair<NameId, Value>> variables;

  const Value* Find(NameId name) const {
    for (const auto& [id, value] : variables) {
      if (id == name) return &value;
    }
    return nullptr;
  }
  void Set(NameId name, Value value) {
    for (auto& [id, old] : variables) {
      if (id == name) {
        old = std::move(value);
        return;
      }
    }
    variables.emplace_back(name, std::move(value));
  }
};

// namespace(): the one thing a template can change in place.
struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;

  const Value* Find(std::string_view name) const;
  void Set(std::string_view name, Value value);
};

// `loop` inside a for.
struct Loop {
  std::shared_ptr<const Sequence> items;
  int64_t index0 = 0;
  int depth0 = 0;
  Value last_changed;  // argument tuple of the last loop.changed()
};

// A macro, or the body of a call block.
struct Macro {
  const MacroDefinition* definition = nullptr;
  Frame* scope = nullptr;  // where it was defined; its free names are looked up there
};

// `text.strip` without the call.
struct BoundMethod {
  Value self;
  const NamedFunction* method = nullptr;
};

struct GlobalFunction {
  const NamedFunction* function = nullptr;
};

struct Cycler {
  std::vector<Value> items;
  size_t position = 0;
};

struct Joiner {
  std::string separator;
  bool used = false;
};

struct Object {
  std::variant<Namespace, Loop, Macro, BoundMethod, GlobalFunction, Cycler, Joiner, Frame> state;

  template <typename T>
  T* As() {
    return std::get_if<T>(&state);
  }
  template <typename T>
  const T* As() const {
    return std::get_if<T>(&state);
  }
};

std::string_view ObjectTypeName(const Object& object);

}  // namespace hayate::text::jinja
