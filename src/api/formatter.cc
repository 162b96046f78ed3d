#include "api/formatter.h"

#include "api/error_table.h"
#include "http/sse.h"

namespace hayate::api {

std::string_view Formatter::stream_type() const { return http::kSseContentType; }

void Formatter::Fail(const Status& status, std::string& out) {
  http::AppendSseEvent(out, ErrorBody(status));
  out += http::kSseDone;
}

}  // namespace hayate::api
