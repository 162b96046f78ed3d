#include "console/console.h"

#include <algorithm>
#include <array>
#include <string>

#include "console/files.h"

namespace hayate::console {
namespace {

constexpr std::string_view kFolder = "/console/";
constexpr std::string_view kIndex = "index.html";

// Scripts and styles come from this server alone, and so does everything that they ask for. Nothing
// is inline, nothing frames the page.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

std::string_view TypeOf(std::string_view name) {
  constexpr std::array<std::array<std::string_view, 2>, 4> kTypes = {
      {{".html", "text/html; charset=utf-8"},
       {".js", "text/javascript; charset=utf-8"},
       {".css", "text/css; charset=utf-8"},
       {".svg", "image/svg+xml"}}};
  for (const auto& [ending, type] : kTypes) {
    if (name.ends_with(ending)) return type;
  }
  return "application/octet-stream";
}

}  // namespace

bool Answer(const http::Request& request, http::ResponseWriter& writer) {
  if (request.method != "GET" && request.method != "HEAD") return false;
  const std::string_view path = request.path;
  if (path != "/" && !path.starts_with(kFolder)) return false;
  const std::string_view name = path == "/" ? kIndex : path.substr(kFolder.size());
  const auto files = Files();
  const auto file = std::find_if(files.begin(), files.end(),
                                 [name](const File& each) { return each.name == name; });
  if (file == files.end()) return false;
  const std::string tag = "\"" + std::string(file->hash) + "\"";
  const std::array<http::Header, 5> headers = {{{"Content-Security-Policy", kPolicy},
                                                {"X-Content-Type-Options", "nosniff"},
                                                {"Referrer-Policy", "no-referrer"},
                                                {"Cache-Control", "no-cache"},
                                                {"ETag", tag}}};
  if (request.headers.Find("if-none-match") == tag) {
    writer.Send({.status = 304, .headers = headers}, {});
    return true;
  }
  writer.Send({.content_type = TypeOf(file->name), .headers = headers}, file->bytes);
  return true;
}

}  // namespace hayate::console
