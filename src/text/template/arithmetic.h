#pragma once
// Operators on values, with Python's rules; integers are 64 bits wide and overflow is an error.

#include "base/status.h"
#include "text/template/ast.h"
#include "text/template/state.h"

namespace hayate::text::jinja {

Result<Value> ApplyUnary(State& state, UnaryOperator op, const Value& operand);
Result<Value> ApplyBinary(State& state, BinaryOperator op, const Value& left, const Value& right);

}  // namespace hayate::text::jinja
