#include "api/error_table.h"

#include "base/check.h"
#include "base/json_writer.h"

namespace hayate::api {
namespace {

constexpr std::string_view kInvalidRequest = "invalid_request_error";

std::string Render(std::string_view message, std::string_view type, std::string_view param,
                   std::string_view code) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Key("error");
  json.BeginObject();
  json.Field("message", message);
  json.Field("type", type);
  param.empty() ? json.NullField("param") : json.Field("param", param);
  json.Field("code", code);
  json.EndObject();
  json.EndObject();
  return out;
}

// Anthropic's names, which go by the HTTP status.
std::string_view AnthropicType(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 408:
      return "timeout_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    default:
      return http_status < 500 ? kInvalidRequest : "api_error";
  }
}

std::string RenderAnthropic(std::string_view message, std::string_view type) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("type", "error");
  json.Key("error");
  json.BeginObject();
  json.Field("type", type);
  json.Field("message", message);
  json.EndObject();
  json.EndObject();
  return out;
}

}  // namespace

const ErrorKind& KindOf(ErrorCode code) {
  static constexpr ErrorKind kOk{200, "", false};
  static constexpr ErrorKind kInvalid{400, kInvalidRequest, false};
  static constexpr ErrorKind kNotFound{404, "not_found_error", false};
  static constexpr ErrorKind kNoKey{401, "authentication_error", false};
  static constexpr ErrorKind kForbidden{403, "permission_error", false};
  static constexpr ErrorKind kTooLarge{413, kInvalidRequest, false};
  static constexpr ErrorKind kBusy{429, "rate_limit_error", true};
  static constexpr ErrorKind kLate{408, "timeout_error", true};
  static constexpr ErrorKind kGone{499, "cancelled_error", true};
  static constexpr ErrorKind kDown{503, "service_unavailable_error", true};
  static constexpr ErrorKind kOurs{500, "server_error", true};
  switch (code) {
    case ErrorCode::kOk:
      return kOk;
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kContextTooLong:
    case ErrorCode::kUnsupported:
      return kInvalid;
    case ErrorCode::kNotFound:
      return kNotFound;
    case ErrorCode::kUnauthenticated:
      return kNoKey;
    case ErrorCode::kPermissionDenied:
      return kForbidden;
    case ErrorCode::kPayloadTooLarge:
      return kTooLarge;
    case ErrorCode::kResourceExhausted:
      return kBusy;
    case ErrorCode::kDeadlineExceeded:
      return kLate;
    case ErrorCode::kCancelled:
      return kGone;
    case ErrorCode::kUnavailable:
      return kDown;
    case ErrorCode::kDataLoss:
    case ErrorCode::kIo:
    case ErrorCode::kInternal:
      return kOurs;
  }
  CHECK(false) << "unknown ErrorCode " << static_cast<int>(code);
}

std::string ErrorBody(const Status& status, ErrorShape shape) {
  if (shape == ErrorShape::kAnthropic) {
    return RenderAnthropic(status.message(), AnthropicType(KindOf(status.code()).http_status));
  }
  if (shape == ErrorShape::kOllama) {
    std::string out;
    JsonWriter json(out);
    json.BeginObject();
    json.Field("error", status.message());
    json.EndObject();
    return out;
  }
  std::string_view code = ErrorCodeName(status.code());
  if (status.code() == ErrorCode::kContextTooLong) code = "context_length_exceeded";
  if (status.code() == ErrorCode::kNotFound && status.param() == "model") code = "model_not_found";
  return Render(status.message(), KindOf(status.code()).type, status.param(), code);
}

std::string ErrorBody(int http_status, std::string_view message) {
  const std::string_view type = http_status == 429   ? "rate_limit_error"
                                : http_status == 503 ? "service_unavailable_error"
                                : http_status < 500  ? kInvalidRequest
                                                     : "server_error";
  return Render(message, type, "", std::to_string(http_status));
}

ErrorShape ErrorShapeOf(std::string_view path) {
  if (path.starts_with("/v1/messages")) return ErrorShape::kAnthropic;
  return path.starts_with("/api/") ? ErrorShape::kOllama : ErrorShape::kOpenAi;
}

}  // namespace hayate::api
