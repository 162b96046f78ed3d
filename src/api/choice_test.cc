#include "api/choice.h"

#include <gtest/gtest.h>

#include "api/testing/byte_model.h"
#include "base/rng.h"

namespace hayate::api {
namespace {

using testing::ByteModel;
using testing::kEnd;

// An answer of given bytes, one token each, pushed in random pieces; deltas are checked as they
// come and joined.
struct Streamed {
  std::string text;
  std::vector<TokenId> logprob_tokens;
  size_t num_tokens = 0;
  ChoiceEnd end;
};

TokenEvent Event(std::span<const TokenId> tokens) {
  TokenEvent event;
  event.tokens.assign(tokens.begin(), tokens.end());
  for (const TokenId token : tokens) event.logprobs.push_back({.token = token, .logprob = -1.0f});
  return event;
}

Streamed Stream(const GenerationSpec& spec, const std::vector<TokenId>& tokens, Rng& rng) {
  const ServedModel model = ByteModel();
  Choice choice(spec, model, Choice::Prompt{.tokens = 1});
  Streamed out;
  for (size_t begin = 0; !choice.ended();) {
    const size_t end = std::min(tokens.size(), begin + 1 + rng.Below(3));
    TokenEvent event = Event(std::span(tokens).subspan(begin, end - begin));
    begin = end;
    if (begin == tokens.size()) {
      event.finish = tokens.back() == kEnd ? FinishReason::kStop : FinishReason::kLength;
      if (tokens.back() == kEnd) event.matched_stop = kEnd;
    }
    ChoiceDelta delta = choice.Push(event);
    out.text += delta.text;
    out.num_tokens += delta.tokens.size();
    for (const TokenLogprob& entry : delta.logprobs) out.logprob_tokens.push_back(entry.token);
    EXPECT_EQ(delta.end.has_value(), choice.ended());
    if (delta.end) out.end = *delta.end;
    // A log-probability never runs ahead of its text: all but the last three bytes of a character
    // in the making have been passed on.
    if (!delta.end) {
      EXPECT_LE(out.logprob_tokens.size(), out.text.size() + 3);
    }
  }
  EXPECT_EQ(static_cast<size_t>(choice.completion_tokens()), out.num_tokens);
  return out;
}

std::vector<TokenId> Bytes(std::string_view text) {
  std::vector<TokenId> tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

GenerationSpec SpecWithStops(std::vector<std::string> stops) {
  GenerationSpec spec;
  spec.logprobs.enabled = true;
  if (stops.empty()) return spec;
  spec.stop_strings = std::make_shared<const text::StopStrings>(
      std::move(text::StopStrings::Create(std::move(stops))).value());
  return spec;
}

TEST(Choice, LogprobsFollowTheTextUpToWhereAStopStringCutsIt) {
  Rng rng(1);
  int num_cut = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (uint32_t i = 0; i < 1 + rng.Below(30); ++i) text += "ab"[rng.Below(2)];
    std::string stop;
    for (uint32_t i = 0; i < 1 + rng.Below(6); ++i) stop += "ab"[rng.Below(2)];
    const Streamed out = Stream(SpecWithStops({stop}), Bytes(text), rng);
    const size_t cut = text.find(stop);
    num_cut += cut != std::string::npos;
    EXPECT_EQ(out.text, text.substr(0, cut));
    // One token a byte: exactly the tokens of the text that was passed on.
    EXPECT_EQ(out.logprob_tokens, Bytes(out.text));
    if (cut == std::string::npos) {
      EXPECT_EQ(out.end.reason, FinishReason::kLength);
    } else {
      EXPECT_EQ(out.end.reason, FinishReason::kStop);
      EXPECT_EQ(std::get<std::string>(out.end.matched_stop), stop);
      EXPECT_EQ(out.num_tokens, cut + stop.size());
    }
  }
  EXPECT_GT(num_cut, 500);
  EXPECT_LT(num_cut, 1900);
}

TEST(Choice, ATokenThatReachesIntoTheStopStringKeepsItsLogprob) {
  Rng rng(2);
  std::vector<TokenId> tokens = Bytes("in ");
  tokens.push_back(testing::kThe);
  const Streamed out = Stream(SpecWithStops({"he"}), tokens, rng);
  EXPECT_EQ(out.text, "in t");
  EXPECT_EQ(out.logprob_tokens, tokens);
}

TEST(Choice, AStopTokenIsCountedAndLeavesNoText) {
  Rng rng(3);
  std::vector<TokenId> tokens = Bytes("yes");
  tokens.push_back(kEnd);
  const Streamed out = Stream(SpecWithStops({}), tokens, rng);
  EXPECT_EQ(out.text, "yes");
  EXPECT_EQ(out.num_tokens, 4u);
  EXPECT_EQ(out.logprob_tokens, tokens);
  EXPECT_EQ(std::get<TokenId>(out.end.matched_stop), kEnd);

  GenerationSpec kept = SpecWithStops({});
  kept.stop_text = text::StopText::kKept;
  kept.skip_special = text::SkipSpecial::kNo;
  EXPECT_EQ(Stream(kept, tokens, rng).text, "yes<|im_end|>");
}

TEST(Choice, TextNeverEndsInsideACharacter) {
  Rng rng(4);
  const std::string text = "a🦙é漢";
  for (size_t length = 1; length <= text.size(); ++length) {
    const Streamed out = Stream(SpecWithStops({}), Bytes(text.substr(0, length)), rng);
    const std::string joined =
        ByteModel().tokenizer->Decode(Bytes(text.substr(0, length)), text::SkipSpecial::kYes);
    EXPECT_EQ(out.text, joined);
    EXPECT_EQ(out.logprob_tokens.size(), length);
  }
}

TEST(Choice, AHeldBackTailIsDeliveredWhenTheAnswerEnds) {
  Rng rng(5);
  EXPECT_EQ(Stream(SpecWithStops({"abcdef"}), Bytes("xabcde"), rng).text, "xabcde");
}

TEST(Choice, StopStringsWaitForMinNewTokens) {
  Rng rng(6);
  GenerationSpec spec = SpecWithStops({"a"});
  spec.sampling.min_new_tokens = 4;
  const Streamed out = Stream(spec, Bytes("aaaaaa"), rng);
  EXPECT_EQ(out.text, "aaa");
  EXPECT_EQ(out.num_tokens, 4u);
}

GenerationSpec SpecWithRegex(std::string pattern, std::vector<std::string> stops = {}) {
  GenerationSpec spec = SpecWithStops(std::move(stops));
  spec.stop_regexes = std::make_shared<const text::StopRegexes>(
      text::StopRegexes::Create({std::move(pattern)}).value());
  return spec;
}

TEST(Choice, AStopExpressionEndsTheAnswerAndItsScores) {
  Rng rng(7);
  for (int round = 0; round < 20; ++round) {
    const Streamed out = Stream(SpecWithRegex("#[0-9]+;"), Bytes("a #b #12; c"), rng);
    EXPECT_EQ(out.text, "a #b ");
    EXPECT_EQ(out.logprob_tokens, Bytes("a #b "));
    EXPECT_EQ(std::get<std::string>(out.end.matched_stop), "#[0-9]+;");
    EXPECT_EQ(out.end.reason, FinishReason::kStop);
  }
}

TEST(Choice, StopStringsAndExpressionsHoldTogether) {
  Rng rng(8);
  for (int round = 0; round < 20; ++round) {
    const Streamed string_first = Stream(SpecWithRegex("x+y", {"stop"}), Bytes("a stop xxy"), rng);
    EXPECT_EQ(string_first.text, "a ");
    EXPECT_EQ(std::get<std::string>(string_first.end.matched_stop), "stop");
    const Streamed regex_first =
        Stream(SpecWithRegex("x+y", {"stop"}), Bytes("a sto xxy stop"), rng);
    EXPECT_EQ(regex_first.text, "a sto ");
    EXPECT_EQ(std::get<std::string>(regex_first.end.matched_stop), "x+y");
    EXPECT_EQ(Stream(SpecWithRegex("x+y", {"xxz"}), Bytes("a xx"), rng).text, "a xx");
  }
}

TEST(Choice, ScoresThatOnlyRankAreSummedAndNotShown) {
  GenerationSpec spec;
  spec.num_best = 1;
  spec.n = 2;
  EXPECT_TRUE(spec.EngineLogprobs().enabled);
  const ServedModel model = ByteModel();
  Choice choice(spec, model, Choice::Prompt{.tokens = 1});
  TokenEvent event = Event(Bytes("abc"));
  EXPECT_TRUE(choice.Push(event).logprobs.empty());
  EXPECT_DOUBLE_EQ(choice.cumulative_logprob(), -3.0);
}

TEST(Choice, PromptAndAnswerKeepTheirOwnNumbersOfAlternatives) {
  GenerationSpec spec;
  spec.logprobs = {.enabled = true, .num_top = 1};
  spec.prompt_logprobs = 2;
  EXPECT_EQ(spec.EngineLogprobs().num_top, 2);
  EXPECT_EQ(spec.EngineLogprobs().prompt_start, 0);
  const ServedModel model = ByteModel();
  Choice choice(spec, model, Choice::Prompt{.tokens = 2});
  TokenEvent event = Event(Bytes("a"));
  event.logprobs[0].top = {{1, -1.0f}, {2, -2.0f}};
  event.prompt_logprobs.push_back({.token = 1, .logprob = -1.0f, .top = {{1, -1.0f}, {2, -2.0f}}});
  EXPECT_EQ(choice.Push(event).logprobs[0].top.size(), 1u);
  EXPECT_EQ(choice.prompt_logprobs()[0].top.size(), 2u);
}

}  // namespace
}  // namespace hayate::api
