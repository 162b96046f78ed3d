// ParseWorkerFile of discovery.h.

#include <simdjson.h>

#include "base/error.h"
#include "gateway/discovery.h"
#include "gateway/own_routes.h"

namespace hayate::gateway {
namespace {

constexpr size_t kMaxFileWorkers = 4096;

Result<std::vector<WorkerSpec>> ParseLines(std::string_view text) {
  std::vector<WorkerSpec> workers;
  int number = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    ++number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
    if (line.empty() || line.front() == '#') continue;
    auto url = NormaliseWorkerUrl(line);
    if (!url.ok()) return url.status().Under(fmt::format("line {}", number));
    workers.push_back({.url = std::move(url).value()});
  }
  return workers;
}

}  // namespace

Result<std::vector<WorkerSpec>> ParseWorkerFile(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return std::vector<WorkerSpec>();
  if (text[first] != '{') return ParseLines(text);
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  simdjson::dom::array list;
  const simdjson::padded_string padded(text);
  if (parser.parse(padded).get(root) != simdjson::SUCCESS ||
      root["workers"].get(list) != simdjson::SUCCESS) {
    return Error(ErrorCode::kInvalidArgument, "not a JSON object with a list \"workers\"");
  }
  std::vector<WorkerSpec> workers;
  for (const simdjson::dom::element& entry : list) {
    auto spec = ParseWorkerSpec(simdjson::minify(entry));
    if (!spec.ok()) return spec.status().Under(fmt::format("workers[{}]", workers.size()));
    workers.push_back(std::move(spec).value());
    if (workers.size() > kMaxFileWorkers) {
      return Error(ErrorCode::kInvalidArgument, "more than {} workers", kMaxFileWorkers);
    }
  }
  return workers;
}

}  // namespace hayate::gateway
