#pragma once
// Error(): a Status with a formatted message.

#include <fmt/format.h>

#include <utility>

#include "base/status.h"

namespace hayate {

// Error(ErrorCode::kInvalidArgument, "top_p is {}, must be in (0, 1]", p)
template <typename... Args>
Status Error(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}

// The same for a request field: the message starts with the field's name.
template <typename... Args>
Status InvalidField(std::string field, fmt::format_string<Args...> format, Args&&... args) {
  std::string message = field + ": " + fmt::format(format, std::forward<Args>(args)...);
  return Status(ErrorCode::kInvalidArgument, std::move(message)).WithParam(std::move(field));
}

}  // namespace hayate
