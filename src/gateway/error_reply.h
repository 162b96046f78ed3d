#pragma once
// Errors that the gateway itself answers with, in the shape of the API that the client speaks.

#include <cstdint>
#include <string>
#include <string_view>

#include "gateway/route.h"
#include "http/response_writer.h"

namespace hayate::gateway {

struct ErrorReply {
  int status = 503;
  std::string_view code;      // "no_healthy_workers": for programs, and in x-router-error-code
  std::string message;        // for people
  int64_t retry_after_s = 0;  // 0: no Retry-After
};

// {"error":{"message","type","param","code"}}.
std::string ErrorJson(const ErrorReply& error);
void SendErrorReply(http::ResponseWriter& writer, const ErrorReply& error,
                    std::string_view request_id);

// The last event of a stream that breaks. Clients of either API raise it as an error.
std::string ErrorEvent(const ErrorReply& error, StreamDialect dialect);

// "invalid_request_error" and the like.
std::string_view ErrorType(int status);

}  // namespace hayate::gateway
