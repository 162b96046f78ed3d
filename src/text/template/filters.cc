#include "text/template/filters.h"

#include "base/error.h"

namespace hayate::text::jinja {

Function FindFilter(std::string_view name) {
  for (const std::span<const NamedFunction> table :
       {TextFilters(), NumberFilters(), SequenceFilters(), SelectionFilters()}) {
    for (const NamedFunction& entry : table) {
      if (entry.name == name) return entry.function;
    }
  }
  return nullptr;
}

Result<Value> ApplyFilter(State& state, std::string_view name, const Value& value,
                          const Arguments& arguments) {
  const Function filter = FindFilter(name);
  if (filter == nullptr) return Error(ErrorCode::kInvalidArgument, "there is no filter '{}'", name);
  RETURN_IF_ERROR(state.Step());
  // x|map('map', 'map', …) recurses once per name.
  const DepthGuard guard(state);
  RETURN_IF_ERROR(guard.Check());
  return filter(state, value, arguments);
}

}  // namespace hayate::text::jinja
