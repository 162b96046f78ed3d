#pragma once
// One table from our error codes to what clients see: HTTP status, OpenAI's error type, and whether
// a retry can help.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hayate::api {

struct ErrorKind {
  int http_status;
  std::string_view type;  // OpenAI's: "invalid_request_error", "rate_limit_error"
  bool retryable;
};

const ErrorKind& KindOf(ErrorCode code);

// kOpenAi     {"error":{"message","type","param","code"}}
// kAnthropic  {"type":"error","error":{"type","message"}}
// kOllama     {"error":"…"}
enum class ErrorShape : uint8_t { kOpenAi, kAnthropic, kOllama };

std::string ErrorBody(const Status& status, ErrorShape shape = ErrorShape::kOpenAi);
// The same for an error that has no Status: a refusal by the HTTP layer.
std::string ErrorBody(int http_status, std::string_view message);

// What clients of the route at `path` read.
ErrorShape ErrorShapeOf(std::string_view path);

}  // namespace hayate::api
