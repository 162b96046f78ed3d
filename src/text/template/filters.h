#pragma once
// The filters of templates: jinja2's, and tojson as transformers defines it.

#include <span>
#include <string_view>

#include "text/template/state.h"

namespace hayate::text::jinja {

// Null for an unknown name.
Function FindFilter(std::string_view name);

// Applies a filter by name, as map() and its like do.
Result<Value> ApplyFilter(State& state, std::string_view name, const Value& value,
                          const Arguments& arguments);

// The tables behind FindFilter, one per file.
std::span<const NamedFunction> TextFilters();
std::span<const NamedFunction> NumberFilters();
std::span<const NamedFunction> SequenceFilters();
std::span<const NamedFunction> SelectionFilters();

}  // namespace hayate::text::jinja
