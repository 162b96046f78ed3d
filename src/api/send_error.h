#pragma once
// An error as a whole HTTP answer.

#include "api/error_table.h"
#include "base/status.h"
#include "http/response_writer.h"

namespace hayate::api {

void SendError(http::ResponseWriter& writer, const Status& status,
               ErrorShape shape = ErrorShape::kOpenAi);
void SendJson(http::ResponseWriter& writer, std::string_view body);

}  // namespace hayate::api
