#pragma once
// Runs a syntax tree. One Interpreter per rendering, on one thread; the tree and the context are
// only read.

#include <string>
#include <string_view>

#include "base/status.h"
#include "text/template/ast.h"
#include "text/template/objects.h"
#include "text/template/state.h"

namespace hayate::text::jinja {

class Interpreter {
 public:
  // All three outlive the interpreter.
  Interpreter(const SyntaxTree& tree, const Dict& context, State& state)
      : tree_(tree), context_(context), state_(state) {}

  Result<std::string> Run();

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  // ---- Statements (execute.cc)
  Result<Flow> Execute(const Statement& statement, Frame& frame);
  Result<Flow> ExecuteBody(const Body& body, Frame& frame);
  // The output of a body as text, in a scope of its own.
  Result<std::string> Capture(const Body& body, Frame& parent, Flow& flow);
  Result<Flow> Run(const Text& node, Position position, Frame& frame);
  Result<Flow> Run(const Output& node, Position position, Frame& frame);
  Result<Flow> Run(const If& node, Position position, Frame& frame);
  Result<Flow> Run(const For& node, Position position, Frame& frame);
  Result<Flow> Run(const Assign& node, Position position, Frame& frame);
  Result<Flow> Run(const AssignBlock& node, Position position, Frame& frame);
  Result<Flow> Run(const DefineMacro& node, Position position, Frame& frame);
  Result<Flow> Run(const CallBlock& node, Position position, Frame& frame);
  Result<Flow> Run(const FilterBlock& node, Position position, Frame& frame);
  Result<Flow> Run(const Scope& node, Position position, Frame& frame);
  Result<Flow> Run(const Break& node, Position position, Frame& frame);
  Result<Flow> Run(const Continue& node, Position position, Frame& frame);

  Status AssignTo(const Target& target, Value value, Frame& frame);
  // The items of a loop, those that its filter refuses left out.
  Result<std::shared_ptr<const Sequence>> LoopItems(const For& node, Position position,
                                                    Frame& frame);
  Result<Frame*> NewFrame(Frame* parent);

  // ---- Expressions (evaluate.cc)
  Result<Value> Evaluate(ExpressionRef expression, Frame& frame);
  Result<Value> Eval(const Constant& node, Position position, Frame& frame);
  Result<Value> Eval(const Variable& node, Position position, Frame& frame);
  Result<Value> Eval(const Attribute& node, Position position, Frame& frame);
  Result<Value> Eval(const Subscript& node, Position position, Frame& frame);
  Result<Value> Eval(const Slice& node, Position position, Frame& frame);
  Result<Value> Eval(const ListDisplay& node, Position position, Frame& frame);
  Result<Value> Eval(const TupleDisplay& node, Position position, Frame& frame);
  Result<Value> Eval(const DictDisplay& node, Position position, Frame& frame);
  Result<Value> Eval(const Unary& node, Position position, Frame& frame);
  Result<Value> Eval(const Binary& node, Position position, Frame& frame);
  Result<Value> Eval(const Logical& node, Position position, Frame& frame);
  Result<Value> Eval(const Compare& node, Position position, Frame& frame);
  Result<Value> Eval(const Concatenate& node, Position position, Frame& frame);
  Result<Value> Eval(const Conditional& node, Position position, Frame& frame);
  Result<Value> Eval(const FilterCall& node, Position position, Frame& frame);
  Result<Value> Eval(const TestCall& node, Position position, Frame& frame);
  Result<Value> Eval(const Call& node, Position position, Frame& frame);
  Result<std::vector<Value>> EvaluateAll(const std::vector<ExpressionRef>& expressions,
                                         Frame& frame);

  // ---- Calls (call.cc)
  Result<Arguments> EvaluateArguments(const CallArguments& arguments, Frame& frame);
  // A chain of filters over `input`, for filter blocks and block assignments.
  Result<Value> ApplyFilters(ExpressionRef filter, Value input, Frame& frame);
  Result<Value> CallValue(const Value& callee, const Arguments& arguments, Position position);
  Result<Value> CallMethod(const Attribute& node, const CallArguments& arguments, Position position,
                           Frame& frame);
  Result<Value> CallMacro(const Macro& macro, const Arguments& arguments, Position position);
  // Parameters, their defaults, varargs, kwargs and caller, as variables of the call's frame.
  Status BindMacro(const Macro& macro, const Arguments& arguments, Position position, Frame& frame);
  Status BindKeywords(const MacroDefinition& definition, const Arguments& arguments,
                      Position position, Frame& frame);

  const SyntaxTree& tree_;
  const Dict& context_;
  State& state_;
  std::string output_;  // of the innermost body that is captured
};

}  // namespace hayate::text::jinja
