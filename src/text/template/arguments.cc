#include "text/template/arguments.h"

namespace hayate::text::jinja {

Result<int64_t> IntegerArgument(const Value* argument, int64_t fallback, std::string_view name) {
  if (argument == nullptr) return fallback;
  if (argument->is_integral()) return argument->as_int();
  return Error(ErrorCode::kInvalidArgument, "'{}' must be an integer, not {}", name,
               argument->type_name());
}

Result<std::string_view> TextArgument(const Value* argument, std::string_view fallback,
                                      std::string_view name) {
  if (argument == nullptr) return fallback;
  if (argument->is_string()) return std::string_view(argument->string());
  return Error(ErrorCode::kInvalidArgument, "'{}' must be text, not {}", name,
               argument->type_name());
}

Result<const Value*> RequiredArgument(const Value* argument, std::string_view name) {
  if (argument != nullptr) return argument;
  return Error(ErrorCode::kInvalidArgument, "'{}' is missing", name);
}

}  // namespace hayate::text::jinja
