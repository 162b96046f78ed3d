#pragma once
// One table from our error codes to what clients see: HTTP status, OpenAI's error type, and whether
// a retry can help.

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

// {"error":{"message","type","param","code"}}.
std::string ErrorBody(const Status& status);
// The same for an error that has no Status: a refusal by the HTTP layer.
std::string ErrorBody(int http_status, std::string_view message);

}  // namespace hayate::api
