#include <algorithm>

#include "base/error.h"
#include "text/template/access.h"
#include "text/template/arguments.h"
#include "text/template/builtins.h"
#include "text/template/interpreter.h"
#include "text/template/located.h"
#include "text/template/methods.h"

namespace hayate::text::jinja {

Result<Arguments> Interpreter::EvaluateArguments(const CallArguments& arguments, Frame& frame) {
  Arguments values;
  ASSIGN_OR_RETURN(values.positional, EvaluateAll(arguments.positional, frame));
  for (const auto& [name, source] : arguments.keyword) {
    ASSIGN_OR_RETURN(Value value, Evaluate(source, frame));
    values.keyword.emplace_back(name, std::move(value));
  }
  return values;
}

Result<Value> Interpreter::ApplyFilters(ExpressionRef filter, Value input, Frame& frame) {
  const auto& node = std::get<FilterCall>(filter->node);
  if (node.input != nullptr) {
    ASSIGN_OR_RETURN(input, ApplyFilters(node.input, std::move(input), frame));
  }
  if (node.filter == nullptr) {
    return ErrorAt(filter->position, fmt::format("there is no filter '{}'", node.name));
  }
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node.arguments, frame));
  return Located(filter->position, node.name, node.filter(state_, input, arguments));
}

// object.name(…): the common methods are called without making a bound method first.
Result<Value> Interpreter::CallMethod(const Attribute& node, const CallArguments& arguments,
                                      Position position, Frame& frame) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(node.object, frame));
  const NamedFunction* method = FindMethod(object, node.name);
  if (method == nullptr) {
    ASSIGN_OR_RETURN(const Value callee,
                     Located(position, GetAttribute(state_, object, node.name)));
    ASSIGN_OR_RETURN(const Arguments values, EvaluateArguments(arguments, frame));
    return CallValue(callee, values, position);
  }
  ASSIGN_OR_RETURN(const Arguments values, EvaluateArguments(arguments, frame));
  return Located(position, method->name, method->function(state_, object, values));
}

Result<Value> Interpreter::CallValue(const Value& callee, const Arguments& arguments,
                                     Position position) {
  if (callee.is_undefined()) return ErrorAt(position, callee.undefined_reason());
  if (!callee.is_object()) {
    return ErrorAt(position, fmt::format("{} cannot be called", callee.type_name()));
  }
  Object& object = callee.object();
  if (const Macro* macro = object.As<Macro>()) return CallMacro(*macro, arguments, position);
  if (const auto* global = object.As<GlobalFunction>()) {
    const NamedFunction& function = *global->function;
    if (function.function == RaiseException) return RaiseException(state_, {}, arguments);
    return Located(position, function.name, function.function(state_, {}, arguments));
  }
  if (const auto* bound = object.As<BoundMethod>()) {
    return Located(position, bound->method->name,
                   bound->method->function(state_, bound->self, arguments));
  }
  if (Joiner* joiner = object.As<Joiner>()) {
    return Value::String(std::exchange(joiner->used, true) ? joiner->separator : "");
  }
  return ErrorAt(position, fmt::format("{} cannot be called", callee.type_name()));
}

Result<Value> Interpreter::CallMacro(const Macro& macro, const Arguments& arguments,
                                     Position position) {
  const DepthGuard guard(state_);
  RETURN_IF_ERROR(Located(position, guard.Check()));
  ASSIGN_OR_RETURN(Frame* const frame, NewFrame(macro.scope));
  RETURN_IF_ERROR(BindMacro(macro, arguments, position, *frame));
  std::string outer = std::exchange(output_, {});
  Result<Flow> flow = ExecuteBody(macro.definition->body, *frame);
  std::string text = std::exchange(output_, std::move(outer));
  RETURN_IF_ERROR(flow.status());
  return Located(position, state_.NewString(std::move(text)));
}

Status Interpreter::BindMacro(const Macro& macro, const Arguments& arguments, Position position,
                              Frame& frame) {
  const MacroDefinition& definition = *macro.definition;
  const size_t num_parameters = definition.parameters.size();
  const size_t given = arguments.positional.size();
  if (given > num_parameters && !definition.uses_varargs) {
    return ErrorAt(position, fmt::format("macro '{}' takes at most {} arguments, {} given",
                                         definition.name, num_parameters, given));
  }
  for (size_t i = 0; i < given && i < num_parameters; ++i) {
    frame.Set(definition.parameters[i].name, arguments.positional[i]);
  }
  RETURN_IF_ERROR(BindKeywords(definition, arguments, position, frame));
  // In order, as a default may use the parameters before it.
  for (const MacroDefinition::Parameter& parameter : definition.parameters) {
    if (frame.Find(parameter.name) != nullptr) continue;
    Value value = Value::Undefined(
        fmt::format("parameter '{}' was not provided", tree_.names[parameter.name]));
    if (parameter.default_value != nullptr) {
      ASSIGN_OR_RETURN(value, Evaluate(parameter.default_value, frame));
    }
    frame.Set(parameter.name, std::move(value));
  }
  if (definition.uses_varargs) {
    const auto first = static_cast<ptrdiff_t>(std::min(num_parameters, given));
    ASSIGN_OR_RETURN(Value rest,
                     Located(position, state_.NewTuple({arguments.positional.begin() + first,
                                                        arguments.positional.end()})));
    frame.Set(kVarargsName, std::move(rest));
  }
  return OkStatus();
}

Status Interpreter::BindKeywords(const MacroDefinition& definition, const Arguments& arguments,
                                 Position position, Frame& frame) {
  Dict extra;
  Value caller = Value::Undefined("no caller is defined");
  for (const auto& [name, value] : arguments.keyword) {
    const auto parameter = std::find_if(
        definition.parameters.begin(), definition.parameters.end(),
        [&](const MacroDefinition::Parameter& p) { return tree_.names[p.name] == name; });
    if (parameter != definition.parameters.end()) {
      if (frame.Find(parameter->name) != nullptr) {
        return ErrorAt(position, fmt::format("macro '{}' got '{}' twice", definition.name, name));
      }
      frame.Set(parameter->name, value);
    } else if (name == "caller" && definition.uses_caller) {
      caller = value;
    } else if (definition.uses_kwargs) {
      extra.Set(std::string(name), value);
    } else {
      return ErrorAt(position,
                     fmt::format("macro '{}' has no parameter '{}'", definition.name, name));
    }
  }
  if (definition.uses_caller) frame.Set(kCallerName, std::move(caller));
  if (definition.uses_kwargs) {
    ASSIGN_OR_RETURN(Value rest, Located(position, state_.NewDict(std::move(extra))));
    frame.Set(kKwargsName, std::move(rest));
  }
  return OkStatus();
}

}  // namespace hayate::text::jinja
