#include "api/send_error.h"

namespace hayate::api {

void SendError(http::ResponseWriter& writer, const Status& status, ErrorShape shape) {
  const int http_status = KindOf(status.code()).http_status;
  const http::Header retry{"Retry-After", "1"};
  http::ResponseMeta meta{.status = http_status, .content_type = "application/json"};
  if (http_status == 429 || http_status == 503) meta.headers = {&retry, 1};
  writer.Send(meta, ErrorBody(status, shape));
}

void SendJson(http::ResponseWriter& writer, std::string_view body) {
  writer.Send({.content_type = "application/json"}, body);
}

}  // namespace hayate::api
