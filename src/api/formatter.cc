#include "api/formatter.h"

#include "api/error_table.h"
#include "http/sse.h"

namespace hayate::api {

void Formatter::Fail(const Status& status, std::string& out) {
  http::AppendSseEvent(out, ErrorBody(status));
  out += http::kSseDone;
}

}  // namespace hayate::api
