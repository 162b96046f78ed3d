#include "http/cors.h"

#include <algorithm>
#include <array>

namespace hayate::http {
namespace {

constexpr size_t kMaxAskedFields = 4096;

// Names and commas alone: what is echoed cannot be anything else.
bool IsFieldList(std::string_view text) {
  return text.size() <= kMaxAskedFields && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '-' || c == '_' || c == ',' || c == ' ';
         });
}

}  // namespace

bool ApplyCors(const CorsOptions& options, const Request& request, ResponseWriter& writer) {
  if (options.allowed_origins.empty()) return false;
  const auto origin = request.headers.Find("origin");
  if (!origin) return false;
  const auto& allowed = options.allowed_origins;
  const bool all = std::find(allowed.begin(), allowed.end(), "*") != allowed.end();
  const bool good = all || std::find(allowed.begin(), allowed.end(), *origin) != allowed.end();
  if (!all) writer.AddField("Vary", "Origin");
  if (good) {
    writer.AddField("Access-Control-Allow-Origin", all ? std::string_view("*") : *origin);
    writer.AddField("Access-Control-Expose-Headers", "x-request-id, retry-after");
  }
  const auto method = request.headers.Find("access-control-request-method");
  if (request.method != "OPTIONS" || !method) return false;
  if (good) {
    const auto fields = request.headers.Find("access-control-request-headers");
    writer.AddField("Access-Control-Allow-Methods", "GET, HEAD, POST, PUT, DELETE");
    writer.AddField("Access-Control-Allow-Headers",
                    fields && IsFieldList(*fields) ? *fields : "authorization, content-type");
    writer.AddField("Access-Control-Max-Age", "600");
  }
  writer.Send({.status = good ? 204 : 403}, {});
  return true;
}

}  // namespace hayate::http
