#include "gateway/error_reply.h"

#include <array>

#include "base/json_writer.h"
#include "http/sse.h"

namespace hayate::gateway {
namespace {

std::string Render(const ErrorReply& error, StreamDialect dialect) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  if (dialect == StreamDialect::kAnthropic) json.Field("type", "error");
  json.Key("error");
  json.BeginObject();
  if (dialect == StreamDialect::kAnthropic) {
    json.Field("type", error.status == 429 ? "rate_limit_error" : "api_error");
    json.Field("message", error.message);
  } else {
    json.Field("message", error.message);
    json.Field("type", ErrorType(error.status));
    json.NullField("param");
    json.Field("code", error.code);
  }
  json.EndObject();
  json.EndObject();
  return out;
}

}  // namespace

std::string_view ErrorType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 408:
    case 504:
      return "timeout_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string ErrorJson(const ErrorReply& error) { return Render(error, StreamDialect::kOpenAi); }

void SendErrorReply(http::ResponseWriter& writer, const ErrorReply& error,
                    std::string_view request_id) {
  const std::string seconds = std::to_string(error.retry_after_s);
  std::array<http::Header, 3> headers = {http::Header{"x-router-error-code", error.code}};
  size_t count = 1;
  if (!request_id.empty()) headers[count++] = {"x-request-id", request_id};
  if (error.retry_after_s > 0) headers[count++] = {"Retry-After", seconds};
  writer.Send({.status = error.status,
               .content_type = "application/json",
               .headers = {headers.data(), count}},
              ErrorJson(error));
}

std::string ErrorEvent(const ErrorReply& error, StreamDialect dialect) {
  std::string out;
  if (dialect == StreamDialect::kAnthropic) {
    http::AppendSseEvent(out, "error", Render(error, dialect));
  } else {
    http::AppendSseEvent(out, Render(error, dialect));
  }
  return out;
}

}  // namespace hayate::gateway
