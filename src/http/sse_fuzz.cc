// Any bytes through the SSE parser, cut in two ways: the events must be the same, within the bound,
// and survive being written and read again.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/check.h"
#include "http/sse.h"

namespace hayate::http {
namespace {

constexpr size_t kMaxEventBytes = 1 << 20;  // larger than any input, so that cuts cannot matter

std::vector<std::string> Parse(std::string_view text, size_t step) {
  SseParser parser(kMaxEventBytes);
  std::vector<std::string> out;
  for (size_t i = 0; i < text.size(); i += step) {
    parser.Feed(text.substr(i, step));
    SseEvent event;
    while (parser.Next(event) == SseParser::Outcome::kEvent) {
      CHECK(event.event.find_first_of("\r\n") == std::string_view::npos);
      out.emplace_back(event.data);
    }
  }
  return out;
}

void CheckBound(std::string_view text) {
  constexpr size_t kSmall = 32;
  SseParser parser(kSmall);
  parser.Feed(text);
  SseEvent event;
  while (parser.Next(event) == SseParser::Outcome::kEvent) CHECK(event.data.size() <= kSmall);
}

}  // namespace
}  // namespace hayate::http

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hayate::http;
  if (size >= kMaxEventBytes / 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto events = Parse(text, size + 1);
  CHECK(events == Parse(text, size % 5 + 1));
  CheckBound(text);
  std::string written;
  for (const std::string& event : events) AppendSseEvent(written, event);
  CHECK(Parse(written, 3) == events);
  return 0;
}
