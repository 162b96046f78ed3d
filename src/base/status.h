#pragma once
// Errors as values. Everything the outside can cause (a bad request, a bad model file, a full
// queue) travels as a Status or a Result<T>; broken invariants of our own go to CHECK (check.h).

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace hayate {

// The one list of error kinds. api/error_table.h maps each to an HTTP status and says whether a
// client may retry.
enum class ErrorCode {
  kOk,
  kInvalidArgument,    // a value the caller sent is wrong; the message names the field
  kContextTooLong,     // prompt or prompt + output does not fit the context
  kNotFound,           // no such model, file, route or id
  kUnauthenticated,    // missing or wrong API key
  kPermissionDenied,   // known caller, forbidden action
  kPayloadTooLarge,    // body or header over its limit
  kUnsupported,        // valid, but Hayate does not do it
  kResourceExhausted,  // queue, pool or memory full; retry later
  kDeadlineExceeded,   // the request's own deadline passed
  kCancelled,          // the caller went away or asked to stop
  kUnavailable,        // starting, draining, or the device failed
  kDataLoss,           // a file is truncated or damaged
  kIo,                 // the operating system refused: open, read, map, connect
  kInternal,           // our fault, but survivable
};

// Lower-case words for logs: "invalid_argument".
std::string_view ErrorCodeName(ErrorCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(ErrorCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == ErrorCode::kOk; }
  ErrorCode code() const { return code_; }
  // What went wrong, where, and what to do about it. Shown to users as it is.
  const std::string& message() const { return message_; }
  // The request field at fault ("temperature", "messages[2].role"), or empty.
  const std::string& param() const { return param_; }

  Status WithParam(std::string param) && {
    param_ = std::move(param);
    return std::move(*this);
  }
  // Prefixes the message: Status(kDataLoss, "offset 12…").Under("model.gguf") says "model.gguf:
  // offset 12…".
  Status Under(std::string_view where) const;
  // "invalid_argument: temperature must be ≥ 0".
  std::string ToString() const;

 private:
  ErrorCode code_ = ErrorCode::kOk;
  std::string message_;
  std::string param_;
};

// Formatted errors: error.h.
inline Status OkStatus() { return {}; }

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<1>, std::move(value)) {}
  Result(Status status) : state_(std::in_place_index<0>, std::move(status)) {
    CHECK(!std::get<0>(state_).ok()) << "a Result needs a value or an error";
  }

  bool ok() const { return state_.index() == 1; }
  const Status& status() const {
    static const Status kOkStatus;
    return ok() ? kOkStatus : std::get<0>(state_);
  }
  T& value() & { return Checked(), std::get<1>(state_); }
  const T& value() const& { return Checked(), std::get<1>(state_); }
  T&& value() && { return Checked(), std::get<1>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  void Checked() const { CHECK(ok()) << std::get<0>(state_).ToString(); }
  std::variant<Status, T> state_;
};

}  // namespace hayate

#define HAYATE_CONCAT_INNER(a, b) a##b
#define HAYATE_CONCAT(a, b) HAYATE_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expr` (a Status) is an error.
#define RETURN_IF_ERROR(expr)                                                            \
  do {                                                                                   \
    if (::hayate::Status status_or_ok = (expr); !status_or_ok.ok()) return status_or_ok; \
  } while (false)

// ASSIGN_OR_RETURN(auto x, F()): unwraps a Result or returns its Status.
#define ASSIGN_OR_RETURN(declaration, expr) \
  ASSIGN_OR_RETURN_IMPL(HAYATE_CONCAT(result_, __LINE__), declaration, expr)
#define ASSIGN_OR_RETURN_IMPL(result, declaration, expr) \
  auto result = (expr);                                  \
  if (!result.ok()) return result.status();              \
  declaration = std::move(result).value()
