#include "text/stop_matcher.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/rng.h"

namespace hayate::text {
namespace {

struct Outcome {
  std::string text;
  std::optional<size_t> matched;
};

// The definition: of all occurrences the one that ends first, of those the longest.
Outcome NaiveMatch(const std::vector<std::string>& stops, const std::string& text,
                   StopText stop_text) {
  size_t best_end = std::string::npos;
  std::optional<size_t> best;
  for (size_t i = 0; i < stops.size(); ++i) {
    const size_t found = text.find(stops[i]);
    if (found == std::string::npos) continue;
    const size_t end = found + stops[i].size();
    if (!best || end < best_end || (end == best_end && stops[i].size() > stops[*best].size())) {
      best = i;
      best_end = end;
    }
  }
  if (!best) return {text, best};
  const size_t kept = stop_text == StopText::kKept ? best_end : best_end - stops[*best].size();
  return {text.substr(0, kept), best};
}

Outcome StreamedMatch(const StopStrings& stops, const std::string& text, StopText stop_text,
                      Rng& rng) {
  StopMatcher matcher(stops, stop_text);
  Outcome outcome;
  for (size_t i = 0; i < text.size();) {
    const size_t length = std::min<size_t>(rng.Below(6), text.size() - i);
    StopMatcher::Output out = matcher.Feed(text.substr(i, length));
    outcome.text += out.text;
    if (out.matched) outcome.matched = out.matched;
    i += length;
  }
  outcome.text += matcher.Flush();
  return outcome;
}

std::string RandomText(Rng& rng, int length) {
  std::string text;
  for (int i = 0; i < length; ++i) text += static_cast<char>('a' + rng.Below(3));
  return text;
}

TEST(StopMatcher, AgreesWithNaiveSearchHoweverTheStreamIsCut) {
  Rng rng(1);
  int matches = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::string> strings;
    const int num_strings = rng.Between(0, 4);
    for (int i = 0; i < num_strings; ++i) strings.push_back(RandomText(rng, rng.Between(1, 6)));
    const std::string text = RandomText(rng, rng.Between(0, 40));
    const StopText stop_text = round % 2 == 0 ? StopText::kTrimmed : StopText::kKept;
    const StopStrings stops = StopStrings::Create(strings).value();
    const Outcome expected = NaiveMatch(strings, text, stop_text);
    const Outcome actual = StreamedMatch(stops, text, stop_text, rng);
    ASSERT_EQ(actual.text, expected.text) << text;
    ASSERT_EQ(actual.matched.has_value(), expected.matched.has_value()) << text;
    if (expected.matched) {
      ASSERT_EQ(strings[*actual.matched], strings[*expected.matched]) << text;
      ++matches;
    }
  }
  EXPECT_GT(matches, 5'000);
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStopString) {
  const StopStrings stops = StopStrings::Create({"</s>", "User:"}).value();
  StopMatcher matcher(stops, StopText::kTrimmed);
  EXPECT_EQ(matcher.Feed("1 < 2").text, "1 < 2");
  EXPECT_EQ(matcher.Feed(" and <").text, " and ");
  EXPECT_EQ(matcher.Feed("/").text, "");
  EXPECT_EQ(matcher.Feed("sUse").text, "</s");
  const StopMatcher::Output out = matcher.Feed("r: never sent");
  EXPECT_EQ(out.text, "");
  EXPECT_EQ(out.matched, 1u);
  EXPECT_EQ(matcher.Feed("more").text, "");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, FlushGivesAnUnfinishedStopString) {
  const StopStrings stops = StopStrings::Create({"STOP"}).value();
  StopMatcher matcher(stops, StopText::kTrimmed);
  EXPECT_EQ(matcher.Feed("a STO").text, "a ");
  EXPECT_EQ(matcher.Flush(), "STO");
}

TEST(StopStrings, RefusesEmptyAndOversizedSets) {
  EXPECT_EQ(StopStrings::Create({"a", ""}).status().code(), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(StopStrings::Create(std::vector<std::string>(257, "a")).ok());
  EXPECT_FALSE(StopStrings::Create({std::string(64 * 1024 + 1, 'a')}).ok());
}

}  // namespace
}  // namespace hayate::text
