#include "api/cross_origin.h"

#include <algorithm>
#include <string_view>

namespace hayate::api {

bool AnswerPreflight(const CrossOriginOptions& options, const http::Request& request,
                     http::ResponseWriter& writer) {
  if (options.allowed_origins.empty()) return false;
  const std::string_view origin = request.headers.Find("Origin").value_or("");
  if (origin.empty()) return false;
  const auto& allowed = options.allowed_origins;
  const bool any = std::ranges::find(allowed, "*") != allowed.end();
  // A cache must not give one page's answer to another.
  if (!any) writer.AddField("Vary", "Origin");
  if (!any && std::ranges::find(allowed, origin) == allowed.end()) return false;
  writer.AddField("Access-Control-Allow-Origin", any ? "*" : origin);
  writer.AddField("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
  if (request.method != "OPTIONS" || !request.headers.Find("Access-Control-Request-Method")) {
    return false;
  }
  writer.AddField("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE");
  writer.AddField("Access-Control-Allow-Headers",
                  request.headers.Find("Access-Control-Request-Headers").value_or("*"));
  writer.AddField("Access-Control-Max-Age", "86400");
  writer.Send({.status = 204}, "");
  return true;
}

}  // namespace hayate::api
