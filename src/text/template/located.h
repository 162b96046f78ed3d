#pragma once
// Putting a place in the template into an error.

#include <fmt/format.h>

#include <string_view>

#include "base/status.h"
#include "text/template/ast.h"
#include "text/template/lexer.h"

namespace hayate::text::jinja {

// For errors that have no place yet; evaluated parts bring theirs along.
inline Status Located(Position position, const Status& status) {
  return status.ok() ? status : ErrorAt(position, status.message());
}

template <typename T>
Result<T> Located(Position position, Result<T> result) {
  if (result.ok()) return result;
  return ErrorAt(position, result.status().message());
}

// The same with the name of the function that failed.
template <typename T>
Result<T> Located(Position position, std::string_view function, Result<T> result) {
  if (result.ok()) return result;
  return ErrorAt(position, fmt::format("{}: {}", function, result.status().message()));
}

}  // namespace hayate::text::jinja
