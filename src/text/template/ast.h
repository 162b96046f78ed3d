#pragma once
// The syntax tree of a template. Nodes live in the deques of SyntaxTree and refer to each other by
// plain pointers: freeing a deep tree is no deep recursion. Immutable once parsed.

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/template/state.h"
#include "text/template/value.h"

namespace hayate::text::jinja {

// One-based; columns count code points.
struct Position {
  int line = 1;
  int column = 1;
};

// Index into SyntaxTree::names.
using NameId = uint32_t;
// Names with a meaning of their own, interned first.
inline constexpr NameId kLoopName = 0, kCallerName = 1, kVarargsName = 2, kKwargsName = 3;

struct Expression;
struct Statement;
using ExpressionRef = const Expression*;  // null where the source has none
using Body = std::vector<const Statement*>;

// ---- Expressions

struct Constant {
  Value value;
};
struct Variable {
  NameId name;
};
struct Attribute {
  ExpressionRef object;
  std::string name;
};
struct Subscript {
  ExpressionRef object;
  ExpressionRef index;
};
struct Slice {
  ExpressionRef object;
  ExpressionRef start, stop, step;
};
struct ListDisplay {
  std::vector<ExpressionRef> items;
};
struct TupleDisplay {
  std::vector<ExpressionRef> items;
};
struct DictDisplay {
  std::vector<std::pair<ExpressionRef, ExpressionRef>> entries;
};
enum class UnaryOperator { kNot, kNegate, kPlus };
struct Unary {
  UnaryOperator op;
  ExpressionRef operand;
};
enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
struct Binary {
  BinaryOperator op;
  ExpressionRef left, right;
};
// `and`, `or`: the value is that of the operand that decided.
enum class LogicalOperator { kAnd, kOr };
struct Logical {
  LogicalOperator op;
  ExpressionRef left, right;
};
enum class Comparison {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};
// a < b <= c
struct Compare {
  ExpressionRef first;
  std::vector<std::pair<Comparison, ExpressionRef>> rest;
};
// a ~ b ~ c
struct Concatenate {
  std::vector<ExpressionRef> parts;
};
struct Conditional {
  ExpressionRef condition, if_true, if_false;
};
struct CallArguments {
  std::vector<ExpressionRef> positional;
  std::vector<std::pair<std::string, ExpressionRef>> keyword;
};
// Filters and tests are looked up when parsed; an unknown one is an error only where it runs, as a
// branch that no request takes shall not make a model unusable.
struct FilterCall {
  ExpressionRef input;  // null at the start of a filter block
  std::string name;
  Function filter;
  CallArguments arguments;
};
using TestFunction = Result<bool> (*)(State& state, const Value& value, const Arguments& arguments);
struct TestCall {
  ExpressionRef input;
  std::string name;
  TestFunction test;
  CallArguments arguments;
};
struct Call {
  ExpressionRef callee;
  CallArguments arguments;
};

struct Expression {
  Position position;
  std::variant<Constant, Variable, Attribute, Subscript, Slice, ListDisplay, TupleDisplay,
               DictDisplay, Unary, Binary, Logical, Compare, Concatenate, Conditional, FilterCall,
               TestCall, Call>
      node;
};

// ---- Statements

// What an assignment or a loop writes to.
struct Target {
  Position position;
  std::vector<Target> elements;          // not empty: unpack into these
  NameId name = 0;                       // else this variable,
  std::optional<std::string> attribute;  // or this attribute of the namespace it holds
};

struct Text {
  std::string text;
};
struct Output {
  ExpressionRef value;
};
struct If {
  struct Branch {
    ExpressionRef condition;
    Body body;
  };
  std::vector<Branch> branches;
  Body otherwise;
};
struct For {
  Target target;
  ExpressionRef iterable;
  ExpressionRef filter;
  Body body;
  Body otherwise;
  bool keeps_scope = false;  // a macro inside may refer to the scope of a turn after it ended
};
struct Assign {
  Target target;
  ExpressionRef value;
};
// {% set x | filter %}…{% endset %}
struct AssignBlock {
  Target target;
  ExpressionRef filter;
  Body body;
};
struct MacroDefinition {
  std::string name;
  struct Parameter {
    NameId name;
    ExpressionRef default_value;
  };
  std::vector<Parameter> parameters;
  Body body;
  bool uses_caller = false, uses_varargs = false, uses_kwargs = false;
};
struct DefineMacro {
  NameId name;
  MacroDefinition macro;
};
// {% call(x) macro(…) %}body{% endcall %}
struct CallBlock {
  ExpressionRef call;  // always a Call
  MacroDefinition caller;
};
struct FilterBlock {
  ExpressionRef filter;
  Body body;
};
// {% with %} and {% generation %}: a scope of their own.
struct Scope {
  std::vector<std::pair<Target, ExpressionRef>> assignments;
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  Position position;
  std::variant<Text, Output, If, For, Assign, AssignBlock, DefineMacro, CallBlock, FilterBlock,
               Scope, Break, Continue>
      node;
};

struct SyntaxTree {
  std::deque<Expression> expressions;
  std::deque<Statement> statements;
  std::vector<std::string> names;
  Body body;
};

}  // namespace hayate::text::jinja
