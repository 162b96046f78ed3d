#pragma once
// The bytes of a response head.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "http/response_writer.h"

namespace hayate::http {

enum class ResponseBody { kNone, kLength, kChunked, kUntilClose };

struct ResponseFormat {
  ResponseBody body = ResponseBody::kLength;
  uint64_t content_length = 0;
  bool keep_alive = true;
  bool http_1_0_client = false;  // then keep-alive must be said
  std::string_view fields = {};  // complete lines besides those of the meta
};

// "name: value" and CR LF; a line end inside either becomes a blank.
void AppendField(std::string& out, std::string_view name, std::string_view value);

// Appends status line, fields and the empty line. `date` as in "Sun, 06 Nov 1994 08:49:37 GMT".
void AppendResponseHead(std::string& out, const ResponseMeta& meta, const ResponseFormat& format,
                        std::string_view date);

// The current second in HTTP's form, formatted once a second.
class DateCache {
 public:
  std::string_view Now();

 private:
  int64_t second_ = -1;
  std::string text_;
};

}  // namespace hayate::http
