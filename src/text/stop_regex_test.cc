#include "text/stop_regex.h"

#include <gtest/gtest.h>

#include <random>

namespace hayate::text {
namespace {

struct Streamed {
  std::string text;
  std::optional<size_t> matched;
};

// The stream cut into pieces of `step` bytes (of whole characters).
Streamed Stream(const StopRegexes& stops, StopText mode, const std::string& stream, size_t step) {
  StopRegexMatcher matcher(stops, mode);
  Streamed ran;
  for (size_t at = 0; at < stream.size();) {
    size_t end = std::min(at + step, stream.size());
    while (end < stream.size() && (stream[end] & 0xC0) == 0x80) ++end;
    const auto output = matcher.Feed(stream.substr(at, end - at));
    ran.text += output.text;
    if (output.matched) {
      ran.matched = output.matched;
      return ran;
    }
    at = end;
  }
  ran.text += matcher.Flush();
  return ran;
}

StopRegexes Make(std::vector<std::string> patterns) {
  return StopRegexes::Create(std::move(patterns)).value();
}

TEST(StopRegex, AMatchIsCutOrKept) {
  const StopRegexes stops = Make({"END[0-9]"});
  for (const size_t step : {1, 2, 3, 100}) {
    const Streamed cut = Stream(stops, StopText::kTrimmed, "text EN END END7 more", step);
    EXPECT_EQ(cut.text, "text EN END ");
    EXPECT_EQ(cut.matched, 0u);
    EXPECT_EQ(Stream(stops, StopText::kKept, "text EN END END7 more", step).text,
              "text EN END END7");
  }
}

TEST(StopRegex, WhatMayBeAMatchIsHeldBack) {
  const StopRegexes stops = Make({"a+b"});
  StopRegexMatcher matcher(stops, StopText::kTrimmed);
  EXPECT_EQ(matcher.Feed("xa").text, "x");
  EXPECT_EQ(matcher.Feed("aa").text, "");
  EXPECT_EQ(matcher.Feed("c").text, "aaac");
  EXPECT_EQ(matcher.Feed("aa").text, "");
  EXPECT_EQ(matcher.Flush(), "aa");
}

TEST(StopRegex, TheMatchThatBeginsFirstCounts) {
  const StopRegexes stops = Make({"cd", "b.d"});
  const Streamed ran = Stream(stops, StopText::kTrimmed, "abcd", 100);
  EXPECT_EQ(ran.text, "a");
  EXPECT_EQ(ran.matched, 1u);
}

TEST(StopRegex, ExpressionsLookBackAndAnchorAtTheStreamsStartAlone) {
  const StopRegexes behind = Make({"(?<=b)c"});
  EXPECT_EQ(Stream(behind, StopText::kTrimmed, "acbc", 1).text, "acb");
  const StopRegexes anchored = Make({"^x"});
  EXPECT_EQ(Stream(anchored, StopText::kTrimmed, std::string(500, 'a') + "x", 1).matched,
            std::nullopt);
  EXPECT_EQ(Stream(anchored, StopText::kTrimmed, "xa", 1).matched, 0u);
}

TEST(StopRegex, BadExpressionsAreRefusedWithTheirPlace) {
  const Status status = StopRegexes::Create({"ok", "a(b"}).status();
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'a(b', near offset 3"), std::string::npos) << status.message();
  EXPECT_FALSE(StopRegexes::Create(std::vector<std::string>(9, "a")).ok());
  EXPECT_FALSE(StopRegexes::Create({std::string(5000, 'a')}).ok());
}

TEST(StopRegex, HostileExpressionsGiveUpInsteadOfHanging) {
  const StopRegexes stops = Make({"(a+)+$b", "(*LIMIT_MATCH=1000000000)(x+x+)+y"});
  const std::string stream = std::string(3000, 'a') + std::string(3000, 'x');
  EXPECT_EQ(Stream(stops, StopText::kTrimmed, stream, 50).text, stream);
}

// Against a search in the whole text: for expressions whose first match does not depend on what
// follows it.
TEST(StopRegex, CutsOfTheStreamDoNotMatter) {
  std::mt19937 random(3);
  const std::vector<std::string> patterns = {"ab|ba", "c[ab]c", "aab+c", "é.a"};
  const StopRegexes stops = Make(patterns);
  for (int round = 0; round < 2000; ++round) {
    std::string stream;
    for (int i = 0; i < 12; ++i) {
      stream += std::vector<std::string>{"a", "b", "c", "é"}[random() % 4];
    }
    const Streamed by_one = Stream(stops, StopText::kKept, stream, 1);
    size_t found = std::string::npos;
    for (const char* needle : {"ab", "ba"}) found = std::min(found, stream.find(needle));
    EXPECT_TRUE(found == std::string::npos || by_one.matched) << stream;
    const Streamed again = Stream(stops, StopText::kKept, stream, 1 + random() % 3);
    EXPECT_EQ(again.matched.has_value(), by_one.matched.has_value()) << stream;
    EXPECT_TRUE(by_one.matched || by_one.text == stream) << stream;
    EXPECT_TRUE(stream.starts_with(by_one.text)) << stream;
  }
}

}  // namespace
}  // namespace hayate::text
