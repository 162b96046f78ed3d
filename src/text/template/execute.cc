#include "base/error.h"
#include "text/template/access.h"
#include "text/template/interpreter.h"
#include "text/template/located.h"
#include "text/template/printing.h"

namespace hayate::text::jinja {

Result<std::string> Interpreter::Run() {
  ASSIGN_OR_RETURN(Frame* const frame, NewFrame(nullptr));
  RETURN_IF_ERROR(ExecuteBody(tree_.body, *frame).status());
  return std::move(output_);
}

Result<Frame*> Interpreter::NewFrame(Frame* parent) {
  ASSIGN_OR_RETURN(const Value object, state_.NewObject({Frame{parent, {}}}));
  return object.object().As<Frame>();
}

Result<Interpreter::Flow> Interpreter::ExecuteBody(const Body& body, Frame& frame) {
  for (const Statement* statement : body) {
    ASSIGN_OR_RETURN(const Flow flow, Execute(*statement, frame));
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Result<Interpreter::Flow> Interpreter::Execute(const Statement& statement, Frame& frame) {
  const DepthGuard guard(state_);
  RETURN_IF_ERROR(Located(statement.position, guard.Check()));
  RETURN_IF_ERROR(Located(statement.position, state_.Step()));
  return std::visit([&](const auto& node) { return Run(node, statement.position, frame); },
                    statement.node);
}

Result<std::string> Interpreter::Capture(const Body& body, Frame& parent, Flow& flow) {
  ASSIGN_OR_RETURN(Frame* const frame, NewFrame(&parent));
  std::string outer = std::exchange(output_, {});
  Result<Flow> result = ExecuteBody(body, *frame);
  std::string text = std::exchange(output_, std::move(outer));
  ASSIGN_OR_RETURN(flow, std::move(result));
  return text;
}

Result<Interpreter::Flow> Interpreter::Run(const Text& node, Position position, Frame&) {
  RETURN_IF_ERROR(Located(position, state_.CheckStringSize(output_.size() + node.text.size())));
  RETURN_IF_ERROR(Located(position, state_.Step(static_cast<int64_t>(node.text.size() / 256))));
  output_ += node.text;
  return Flow::kNormal;
}

Result<Interpreter::Flow> Interpreter::Run(const Output& node, Position position, Frame& frame) {
  ASSIGN_OR_RETURN(const Value value, Evaluate(node.value, frame));
  RETURN_IF_ERROR(Located(position, AppendText(state_, value, output_)));
  return Flow::kNormal;
}

Result<Interpreter::Flow> Interpreter::Run(const If& node, Position, Frame& frame) {
  for (const If::Branch& branch : node.branches) {
    ASSIGN_OR_RETURN(const Value condition, Evaluate(branch.condition, frame));
    if (condition.truthy()) return ExecuteBody(branch.body, frame);
  }
  return ExecuteBody(node.otherwise, frame);
}

Result<std::shared_ptr<const Sequence>> Interpreter::LoopItems(const For& node, Position position,
                                                               Frame& frame) {
  ASSIGN_OR_RETURN(const Value iterable, Evaluate(node.iterable, frame));
  ASSIGN_OR_RETURN(auto items, Located(position, Iterate(state_, iterable)));
  if (node.filter == nullptr) return items;
  std::vector<Value> kept;
  for (const Value& item : items->items) {
    Frame turn{&frame, {}};
    RETURN_IF_ERROR(AssignTo(node.target, item, turn));
    ASSIGN_OR_RETURN(const Value passes, Evaluate(node.filter, turn));
    if (passes.truthy()) kept.push_back(item);
  }
  ASSIGN_OR_RETURN(const Value list, Located(position, state_.NewList(std::move(kept))));
  return list.sequence_ref();
}

Result<Interpreter::Flow> Interpreter::Run(const For& node, Position position, Frame& frame) {
  ASSIGN_OR_RETURN(const auto items, LoopItems(node, position, frame));
  ASSIGN_OR_RETURN(const Value loop_value,
                   Located(position, state_.NewObject({Loop{.items = items, .last_changed = {}}})));
  Loop& loop = *loop_value.object().As<Loop>();
  Frame reused{&frame, {}};
  bool completed_a_turn = false;
  for (const Value& item : items->items) {
    RETURN_IF_ERROR(Located(position, state_.Step()));
    Frame* turn = &reused;
    reused.variables.clear();
    if (node.keeps_scope) {
      ASSIGN_OR_RETURN(turn, NewFrame(&frame));
    }
    turn->Set(kLoopName, loop_value);
    RETURN_IF_ERROR(AssignTo(node.target, item, *turn));
    ASSIGN_OR_RETURN(const Flow flow, ExecuteBody(node.body, *turn));
    if (flow == Flow::kBreak) break;
    completed_a_turn = completed_a_turn || flow == Flow::kNormal;
    ++loop.index0;
  }
  // As in jinja2, a turn that break or continue cut short does not count.
  if (completed_a_turn || node.otherwise.empty()) return Flow::kNormal;
  ASSIGN_OR_RETURN(Frame* const otherwise, NewFrame(&frame));
  return ExecuteBody(node.otherwise, *otherwise);
}

Status Interpreter::AssignTo(const Target& target, Value value, Frame& frame) {
  if (!target.elements.empty()) {
    ASSIGN_OR_RETURN(const auto parts, Located(target.position, Iterate(state_, value)));
    if (parts->items.size() != target.elements.size()) {
      return ErrorAt(target.position, fmt::format("{} values for {} names", parts->items.size(),
                                                  target.elements.size()));
    }
    for (size_t i = 0; i < parts->items.size(); ++i) {
      RETURN_IF_ERROR(AssignTo(target.elements[i], parts->items[i], frame));
    }
    return OkStatus();
  }
  if (!target.attribute) {
    RETURN_IF_ERROR(Located(target.position, state_.Charge(sizeof(Value))));
    frame.Set(target.name, std::move(value));
    return OkStatus();
  }
  ASSIGN_OR_RETURN(const Value owner, Eval(Variable{target.name}, target.position, frame));
  Namespace* space = owner.is_object() ? owner.object().As<Namespace>() : nullptr;
  if (space == nullptr) {
    return ErrorAt(target.position,
                   fmt::format("only a namespace has attributes to set; '{}' is {}",
                               tree_.names[target.name], owner.type_name()));
  }
  RETURN_IF_ERROR(Located(target.position, state_.Charge(sizeof(Value))));
  space->Set(*target.attribute, std::move(value));
  return OkStatus();
}

Result<Interpreter::Flow> Interpreter::Run(const Assign& node, Position, Frame& frame) {
  ASSIGN_OR_RETURN(Value value, Evaluate(node.value, frame));
  RETURN_IF_ERROR(AssignTo(node.target, std::move(value), frame));
  return Flow::kNormal;
}

Result<Interpreter::Flow> Interpreter::Run(const AssignBlock& node, Position position,
                                           Frame& frame) {
  Flow flow = Flow::kNormal;
  ASSIGN_OR_RETURN(std::string text, Capture(node.body, frame, flow));
  if (flow != Flow::kNormal) return flow;
  ASSIGN_OR_RETURN(Value value, Located(position, state_.NewString(std::move(text))));
  if (node.filter != nullptr) {
    ASSIGN_OR_RETURN(value, ApplyFilters(node.filter, std::move(value), frame));
  }
  RETURN_IF_ERROR(AssignTo(node.target, std::move(value), frame));
  return Flow::kNormal;
}

Result<Interpreter::Flow> Interpreter::Run(const DefineMacro& node, Position position,
                                           Frame& frame) {
  ASSIGN_OR_RETURN(Value macro, Located(position, state_.NewObject({Macro{&node.macro, &frame}})));
  frame.Set(node.name, std::move(macro));
  return Flow::kNormal;
}

Result<Interpreter::Flow> Interpreter::Run(const CallBlock& node, Position position, Frame& frame) {
  ASSIGN_OR_RETURN(const Value caller,
                   Located(position, state_.NewObject({Macro{&node.caller, &frame}})));
  const auto& call = std::get<Call>(node.call->node);
  ASSIGN_OR_RETURN(const Value callee, Evaluate(call.callee, frame));
  ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(call.arguments, frame));
  arguments.keyword.emplace_back("caller", caller);
  ASSIGN_OR_RETURN(const Value value, CallValue(callee, arguments, node.call->position));
  RETURN_IF_ERROR(Located(position, AppendText(state_, value, output_)));
  return Flow::kNormal;
}

Result<Interpreter::Flow> Interpreter::Run(const FilterBlock& node, Position position,
                                           Frame& frame) {
  Flow flow = Flow::kNormal;
  ASSIGN_OR_RETURN(std::string text, Capture(node.body, frame, flow));
  if (flow != Flow::kNormal) return flow;
  ASSIGN_OR_RETURN(Value value, Located(position, state_.NewString(std::move(text))));
  ASSIGN_OR_RETURN(value, ApplyFilters(node.filter, std::move(value), frame));
  RETURN_IF_ERROR(Located(position, AppendText(state_, value, output_)));
  return Flow::kNormal;
}

Result<Interpreter::Flow> Interpreter::Run(const Scope& node, Position, Frame& frame) {
  ASSIGN_OR_RETURN(Frame* const inner, NewFrame(&frame));
  for (const auto& [target, source] : node.assignments) {
    ASSIGN_OR_RETURN(Value value, Evaluate(source, frame));
    RETURN_IF_ERROR(AssignTo(target, std::move(value), *inner));
  }
  return ExecuteBody(node.body, *inner);
}

Result<Interpreter::Flow> Interpreter::Run(const Break&, Position, Frame&) { return Flow::kBreak; }

Result<Interpreter::Flow> Interpreter::Run(const Continue&, Position, Frame&) {
  return Flow::kContinue;
}

}  // namespace hayate::text::jinja
