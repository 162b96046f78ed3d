#include "http/detail/response_format.h"

#include <fmt/format.h>
#include <time.h>

#include <iterator>

#include "base/clock.h"

namespace hayate::http {
namespace {

void AppendSanitised(std::string& out, std::string_view value) {
  for (char c : value) out.push_back(c == '\r' || c == '\n' || c == '\0' ? ' ' : c);
}

}  // namespace

void AppendField(std::string& out, std::string_view name, std::string_view value) {
  AppendSanitised(out, name);
  out.append(": ");
  AppendSanitised(out, value);
  out.append("\r\n");
}

void AppendResponseHead(std::string& out, const ResponseMeta& meta, const ResponseFormat& format,
                        std::string_view date) {
  fmt::format_to(std::back_inserter(out), "HTTP/1.1 {} {}\r\nDate: {}\r\n", meta.status,
                 ReasonPhrase(meta.status), date);
  if (!meta.content_type.empty()) AppendField(out, "Content-Type", meta.content_type);
  switch (format.body) {
    case ResponseBody::kLength:
      fmt::format_to(std::back_inserter(out), "Content-Length: {}\r\n", format.content_length);
      break;
    case ResponseBody::kChunked:
      out.append("Transfer-Encoding: chunked\r\n");
      break;
    case ResponseBody::kNone:
    case ResponseBody::kUntilClose:
      break;
  }
  if (!format.keep_alive) {
    out.append("Connection: close\r\n");
  } else if (format.http_1_0_client) {
    out.append("Connection: keep-alive\r\n");
  }
  for (const Header& header : meta.headers) AppendField(out, header.name, header.value);
  out.append(format.fields);
  out.append("\r\n");
}

std::string_view DateCache::Now() {
  const int64_t now = UnixSeconds();
  if (now != second_) {
    second_ = now;
    const time_t seconds = static_cast<time_t>(now);
    tm parts{};
    gmtime_r(&seconds, &parts);
    static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
    static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                              "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    text_ = fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[parts.tm_wday],
                        parts.tm_mday, kMonths[parts.tm_mon], parts.tm_year + 1900, parts.tm_hour,
                        parts.tm_min, parts.tm_sec);
  }
  return text_;
}

}  // namespace hayate::http
