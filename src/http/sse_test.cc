#include "http/sse.h"

#include <gtest/gtest.h>

#include <vector>

namespace hayate::http {
namespace {

using Outcome = SseParser::Outcome;

// "event|data|id" of every event, feeding `step` bytes at a time.
std::vector<std::string> Parse(std::string_view text, size_t step) {
  SseParser parser(1 << 16);
  std::vector<std::string> out;
  for (size_t i = 0; i < text.size(); i += step) {
    parser.Feed(text.substr(i, step));
    SseEvent event;
    while (parser.Next(event) == Outcome::kEvent) {
      out.push_back(std::string(event.event) + "|" + std::string(event.data) + "|" +
                    std::string(event.id));
    }
  }
  return out;
}

TEST(Sse, ParsesTheSameHoweverTheBytesArrive) {
  const std::string text =
      "\xEF\xBB\xBF: hello\r\n"
      "data: one\r\n\r\n"
      "event: add\rdata:two\rdata:  three\r\r"
      "id: 7\ndata\n\n"
      "event: dropped\n\n"
      "unknown: x\nretry: 10\ndata: {\"a\": \"b:c\"}\n\n"
      "data: incomplete\n";
  const std::vector<std::string> expected = {"|one|", "add|two\n three|", "||7",
                                             "|{\"a\": \"b:c\"}|7"};
  for (size_t step = 1; step <= text.size(); ++step) EXPECT_EQ(Parse(text, step), expected) << step;
}

TEST(Sse, WrittenEventsReadBack) {
  std::string out;
  AppendSseComment(out, "ping\n\npong");
  AppendSseEvent(out, "a\nb\r\nc\rd");
  AppendSseEvent(out, "message_stop", "{}");
  AppendSseEvent(out, "");
  AppendSseEvent(out, "\n");
  out += kSseDone;
  const std::vector<std::string> expected = {"|a\nb\nc\nd|", "message_stop|{}|", "||", "|\n|",
                                             "|[DONE]|"};
  EXPECT_EQ(Parse(out, 3), expected);
}

TEST(Sse, PlainEventHasTheBytesThatClientsExpect) {
  std::string out;
  AppendSseEvent(out, "{\"x\":1}");
  EXPECT_EQ(out, "data: {\"x\":1}\n\n");
}

TEST(Sse, BoundsTheEvent) {
  SseEvent event;
  SseParser one_line(100);
  one_line.Feed("data: " + std::string(200, 'x'));
  EXPECT_EQ(one_line.Next(event), Outcome::kTooLarge);
  SseParser many_lines(100);
  for (int i = 0; i < 60; ++i) many_lines.Feed("data: x\n");
  EXPECT_EQ(many_lines.Next(event), Outcome::kTooLarge);
  SseParser fits(100);
  for (int i = 0; i < 60; ++i) fits.Feed("data: x\n\n");
  for (int i = 0; i < 60; ++i) EXPECT_EQ(fits.Next(event), Outcome::kEvent);
  EXPECT_EQ(fits.Next(event), Outcome::kNeedMore);
}

}  // namespace
}  // namespace hayate::http
