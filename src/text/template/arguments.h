#pragma once
// Matching the arguments of a call to the parameters of a built-in function.

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/error.h"
#include "text/template/state.h"

namespace hayate::text::jinja {

// Python's rules for `def f(a, b, …)`. Where nothing was given the pointer is null. The pointers
// live as long as `arguments`.
template <size_t N>
Result<std::array<const Value*, N>> Bind(const Arguments& arguments,
                                         const std::array<std::string_view, N>& parameters) {
  std::array<const Value*, N> bound{};
  if (arguments.positional.size() > N) {
    return Error(ErrorCode::kInvalidArgument, "takes at most {} arguments, {} given", N,
                 arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) bound[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.keyword) {
    size_t i = 0;
    while (i < N && parameters[i] != name) ++i;
    if (i == N) return Error(ErrorCode::kInvalidArgument, "has no parameter '{}'", name);
    if (bound[i] != nullptr) return Error(ErrorCode::kInvalidArgument, "'{}' is given twice", name);
    bound[i] = &value;
  }
  return bound;
}

// One argument with its type; `fallback` where it was not given.
Result<int64_t> IntegerArgument(const Value* argument, int64_t fallback, std::string_view name);
Result<std::string_view> TextArgument(const Value* argument, std::string_view fallback,
                                      std::string_view name);
inline bool TruthArgument(const Value* argument, bool fallback) {
  return argument == nullptr ? fallback : argument->truthy();
}
// A parameter that must be given.
Result<const Value*> RequiredArgument(const Value* argument, std::string_view name);

}  // namespace hayate::text::jinja
