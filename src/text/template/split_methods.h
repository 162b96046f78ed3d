#pragma once
// The methods of text that take it apart: str.split() and its relatives.

#include "text/template/state.h"

namespace hayate::text::jinja {

// split(sep=None, maxsplit=-1)
Result<Value> Split(State& state, const Value& self, const Arguments& arguments);
Result<Value> SplitFromRight(State& state, const Value& self, const Arguments& arguments);
// splitlines(keepends=False)
Result<Value> SplitLines(State& state, const Value& self, const Arguments& arguments);
// partition(sep): before it, itself, after it
Result<Value> Partition(State& state, const Value& self, const Arguments& arguments);
Result<Value> PartitionFromRight(State& state, const Value& self, const Arguments& arguments);

}  // namespace hayate::text::jinja
