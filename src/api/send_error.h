#pragma once
// An error as a whole HTTP answer.

#include "base/status.h"
#include "http/response_writer.h"

namespace hayate::api {

void SendError(http::ResponseWriter& writer, const Status& status);
void SendJson(http::ResponseWriter& writer, std::string_view body);

}  // namespace hayate::api
