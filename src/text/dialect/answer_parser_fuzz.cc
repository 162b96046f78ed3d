// Any text, cut anywhere, in any dialect: no crash, and the same parts as in one piece.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "base/check.h"
#include "text/dialect/answer_parser.h"

namespace {

using hayate::text::AnswerEvent;
using hayate::text::AnswerFormat;

std::string Run(const AnswerFormat& format, std::string_view text, size_t piece) {
  const auto parser = hayate::text::MakeAnswerParser(format);
  std::vector<AnswerEvent> events;
  for (size_t at = 0; at < text.size(); at += piece) parser->Feed(text.substr(at, piece), events);
  parser->Finish(events);
  std::string parts[4];
  for (const AnswerEvent& event : events) {
    parts[static_cast<size_t>(event.part)] += event.text + (event.call >= 0 ? "\x01" : "");
  }
  // Pieces of arguments are joined: their cuts are the parser's own business.
  std::erase(parts[3], '\x01');
  return parts[0] + '\n' + parts[1] + '\n' + parts[2] + '\n' + parts[3];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  AnswerFormat format;
  const auto tools = hayate::text::ToolDialects();
  const auto reasoning = hayate::text::ReasoningDialects();
  format.tools = &tools[data[0] % tools.size()];
  if (data[1] % 2 == 0) format.reasoning = &reasoning[data[1] / 2 % reasoning.size()];
  format.starts_inside = data[1] >= 128;
  format.signatures = {{"f", {"s"}}, {"add", {}}};
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const std::string whole = Run(format, text, std::max<size_t>(1, text.size()));
  CHECK_EQ(Run(format, text, 1 + data[2] % 7), whole);
  return 0;
}
