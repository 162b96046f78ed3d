#pragma once
// Equality, order and membership, with Python's rules.

#include <cstddef>
#include <vector>

#include "base/status.h"
#include "text/template/ast.h"
#include "text/template/state.h"

namespace hayate::text::jinja {

Result<bool> Equal(State& state, const Value& a, const Value& b);
// Numbers with numbers, text with text, lists with lists; anything else has no order.
Result<bool> Less(State& state, const Value& a, const Value& b);
// item in container
Result<bool> Contains(State& state, const Value& container, const Value& item);
Result<bool> ApplyComparison(State& state, Comparison op, const Value& a, const Value& b);

// The order that sorts `keys`, stable; `reverse` keeps equal keys in place too. Safe for keys
// without a consistent order (NaN).
enum class SortDirection { kAscending, kDescending };
Result<std::vector<size_t>> SortedOrder(State& state, const std::vector<Value>& keys,
                                        SortDirection direction);

}  // namespace hayate::text::jinja
