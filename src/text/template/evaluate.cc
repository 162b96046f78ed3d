#include "base/error.h"
#include "text/template/access.h"
#include "text/template/arithmetic.h"
#include "text/template/builtins.h"
#include "text/template/comparison.h"
#include "text/template/interpreter.h"
#include "text/template/located.h"
#include "text/template/printing.h"

namespace hayate::text::jinja {

Result<Value> Interpreter::Evaluate(ExpressionRef expression, Frame& frame) {
  const DepthGuard guard(state_);
  RETURN_IF_ERROR(Located(expression->position, guard.Check()));
  RETURN_IF_ERROR(Located(expression->position, state_.Step()));
  return std::visit([&](const auto& node) { return Eval(node, expression->position, frame); },
                    expression->node);
}

Result<std::vector<Value>> Interpreter::EvaluateAll(const std::vector<ExpressionRef>& expressions,
                                                    Frame& frame) {
  std::vector<Value> values;
  values.reserve(expressions.size());
  for (const ExpressionRef expression : expressions) {
    ASSIGN_OR_RETURN(Value value, Evaluate(expression, frame));
    values.push_back(std::move(value));
  }
  return values;
}

Result<Value> Interpreter::Eval(const Constant& node, Position, Frame&) { return node.value; }

Result<Value> Interpreter::Eval(const Variable& node, Position position, Frame& frame) {
  for (const Frame* scope = &frame; scope != nullptr; scope = scope->parent) {
    if (const Value* found = scope->Find(node.name)) return *found;
  }
  const std::string& name = tree_.names[node.name];
  if (const Value* found = context_.Find(std::string_view(name))) return *found;
  if (const NamedFunction* function = FindGlobalFunction(name)) {
    return Located(position, state_.NewObject({GlobalFunction{function}}));
  }
  return Value::Undefined(fmt::format("'{}' is undefined", name));
}

Result<Value> Interpreter::Eval(const Attribute& node, Position position, Frame& frame) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(node.object, frame));
  return Located(position, GetAttribute(state_, object, node.name));
}

Result<Value> Interpreter::Eval(const Subscript& node, Position position, Frame& frame) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(node.object, frame));
  ASSIGN_OR_RETURN(const Value index, Evaluate(node.index, frame));
  return Located(position, GetItem(state_, object, index));
}

Result<Value> Interpreter::Eval(const Slice& node, Position position, Frame& frame) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(node.object, frame));
  Value bounds[3];
  const ExpressionRef sources[3] = {node.start, node.stop, node.step};
  for (int i = 0; i < 3; ++i) {
    if (sources[i] == nullptr) continue;
    ASSIGN_OR_RETURN(bounds[i], Evaluate(sources[i], frame));
  }
  return Located(position, GetSlice(state_, object, &bounds[0], &bounds[1], &bounds[2]));
}

Result<Value> Interpreter::Eval(const ListDisplay& node, Position position, Frame& frame) {
  ASSIGN_OR_RETURN(std::vector<Value> items, EvaluateAll(node.items, frame));
  return Located(position, state_.NewList(std::move(items)));
}

Result<Value> Interpreter::Eval(const TupleDisplay& node, Position position, Frame& frame) {
  ASSIGN_OR_RETURN(std::vector<Value> items, EvaluateAll(node.items, frame));
  return Located(position, state_.NewTuple(std::move(items)));
}

Result<Value> Interpreter::Eval(const DictDisplay& node, Position position, Frame& frame) {
  Dict dict;
  for (const auto& [key_source, value_source] : node.entries) {
    ASSIGN_OR_RETURN(Value key, Evaluate(key_source, frame));
    ASSIGN_OR_RETURN(Value value, Evaluate(value_source, frame));
    if (!IsScalar(key)) {
      return ErrorAt(key_source->position,
                     fmt::format("{} cannot be a dict's key", key.type_name()));
    }
    dict.Set(std::move(key), std::move(value));
  }
  return Located(position, state_.NewDict(std::move(dict)));
}

Result<Value> Interpreter::Eval(const Unary& node, Position position, Frame& frame) {
  ASSIGN_OR_RETURN(const Value operand, Evaluate(node.operand, frame));
  return Located(position, ApplyUnary(state_, node.op, operand));
}

Result<Value> Interpreter::Eval(const Binary& node, Position position, Frame& frame) {
  ASSIGN_OR_RETURN(const Value left, Evaluate(node.left, frame));
  ASSIGN_OR_RETURN(const Value right, Evaluate(node.right, frame));
  return Located(position, ApplyBinary(state_, node.op, left, right));
}

Result<Value> Interpreter::Eval(const Logical& node, Position, Frame& frame) {
  ASSIGN_OR_RETURN(Value left, Evaluate(node.left, frame));
  const bool decided = left.truthy() == (node.op == LogicalOperator::kOr);
  if (decided) return left;
  return Evaluate(node.right, frame);
}

Result<Value> Interpreter::Eval(const Compare& node, Position position, Frame& frame) {
  ASSIGN_OR_RETURN(Value left, Evaluate(node.first, frame));
  for (const auto& [op, operand] : node.rest) {
    ASSIGN_OR_RETURN(Value right, Evaluate(operand, frame));
    ASSIGN_OR_RETURN(const bool holds, Located(position, ApplyComparison(state_, op, left, right)));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Result<Value> Interpreter::Eval(const Concatenate& node, Position position, Frame& frame) {
  std::string text;
  for (const ExpressionRef part : node.parts) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(part, frame));
    RETURN_IF_ERROR(Located(position, AppendText(state_, value, text)));
  }
  return Located(position, state_.NewString(std::move(text)));
}

Result<Value> Interpreter::Eval(const Conditional& node, Position, Frame& frame) {
  ASSIGN_OR_RETURN(const Value condition, Evaluate(node.condition, frame));
  if (condition.truthy()) return Evaluate(node.if_true, frame);
  if (node.if_false != nullptr) return Evaluate(node.if_false, frame);
  return Value::Undefined("this 'if' has no 'else' and its condition is false");
}

Result<Value> Interpreter::Eval(const FilterCall& node, Position position, Frame& frame) {
  ASSIGN_OR_RETURN(const Value input, Evaluate(node.input, frame));
  if (node.filter == nullptr) {
    return ErrorAt(position, fmt::format("there is no filter '{}'", node.name));
  }
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node.arguments, frame));
  return Located(position, node.name, node.filter(state_, input, arguments));
}

Result<Value> Interpreter::Eval(const TestCall& node, Position position, Frame& frame) {
  ASSIGN_OR_RETURN(const Value input, Evaluate(node.input, frame));
  if (node.test == nullptr) {
    return ErrorAt(position, fmt::format("there is no test '{}'", node.name));
  }
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node.arguments, frame));
  ASSIGN_OR_RETURN(const bool passes,
                   Located(position, node.name, node.test(state_, input, arguments)));
  return Value::Bool(passes);
}

Result<Value> Interpreter::Eval(const Call& node, Position position, Frame& frame) {
  if (const auto* method = std::get_if<Attribute>(&node.callee->node)) {
    return CallMethod(*method, node.arguments, position, frame);
  }
  ASSIGN_OR_RETURN(const Value callee, Evaluate(node.callee, frame));
  ASSIGN_OR_RETURN(const Arguments arguments, EvaluateArguments(node.arguments, frame));
  return CallValue(callee, arguments, position);
}

}  // namespace hayate::text::jinja
