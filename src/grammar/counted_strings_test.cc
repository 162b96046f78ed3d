// Strings with bounds on their length: counted exactly, whatever the tokens that spell them.

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/rng.h"
#include "grammar/compiled_grammar.h"
#include "grammar/matcher.h"
#include "grammar/token_bytes.h"
#include "text/testing/small_tokenizers.h"

namespace hayate::grammar {
namespace {

// Bytes, and tokens of several characters, of parts of one, of escapes and parts of them, and such
// as end one string and begin the next.
std::shared_ptr<const Vocabulary> SmallVocabulary() {
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"a", "b"},       {"ab", "ab"},
      {"abab", "abab"}, {"\"", ","},
      {"\",", "\""},    {"\"", "}"},
      {"a", "\""},      {"a\"", ","},
      {"a\",", "\""},   {"a\",\"", "a"},
      {"\"", "a"},      {"\"a", "\""},
      {"\"", ":"},      {"\":", "\""},
      {"\":\"", "ab"},  {"\"", "\""},
      {"\"\"", ","},    {"\\", "n"},
      {"\\n", "\\"},    {"\\", "\""},
      {"\\\"", "\\n"},  {"n", "a"},
      {"\"", "]"},      {"ab", "\""},
      {"ab\"", "]"},    {"\xC3", "\xA9"},
      {"\xA9", "a"},    {"a", "\xC3"},
      {"\\", "\\"},     {"\\\\", "\\\\"},
      {"\xF0", "\x9F"}, {"\x98", "\x80"},
      {"\x9F", "\x98"}, {"\xC3\xA9", "\xC3\xA9"}};
  text::TokenizerSpec spec = text::testing::ByteLevelSpec(merges);
  const auto end = static_cast<int32_t>(256 + merges.size());
  spec.added_tokens.push_back({.content = "<|end|>", .id = end, .special = true});
  return Vocabulary::Create(*text::testing::Make(std::move(spec)),
                            {.vocab_size = end + 1, .stop_ids = {end}, .marker_ids = {}})
      .value();
}

struct Bounds {
  size_t least;
  size_t most;
};

std::string StringSchema(const Bounds& bounds) {
  return fmt::format(R"({{"type":"string","minLength":{},"maxLength":{}}})", bounds.least,
                     bounds.most);
}

// {"a":…,"ab":[…]}, with bounds for either.
std::string PairSchema(const Bounds& a, const Bounds& items) {
  return fmt::format(
      R"({{"type":"object","properties":{{"a":{},"ab":{{"type":"array","items":{}}}}},
          "required":["a","ab"]}})",
      StringSchema(a), StringSchema(items));
}

std::shared_ptr<const CompiledGrammar> Compile(const std::shared_ptr<const Vocabulary>& vocabulary,
                                               const std::string& schema) {
  return CompiledGrammar::Compile(vocabulary, {GrammarKind::kJsonSchema, schema, "f"}).value();
}

bool Allows(const std::vector<uint32_t>& mask, int32_t token) {
  return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

size_t CharactersOf(std::string_view text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

void ExpectWithin(simdjson::dom::element value, const Bounds& bounds, const std::string& text) {
  std::string_view string;
  ASSERT_EQ(value.get(string), simdjson::SUCCESS) << text;
  EXPECT_GE(CharactersOf(string), bounds.least) << text;
  EXPECT_LE(CharactersOf(string), bounds.most) << text;
}

// Of a matcher's place: the mask has exactly the tokens that it would take.
void ExpectExactMask(Matcher& matcher, const std::vector<uint32_t>& mask, const std::string& text) {
  for (int32_t token = 0; token < matcher.grammar().vocabulary().size(); ++token) {
    const bool taken = matcher.Accept(token);
    EXPECT_EQ(Allows(mask, token), taken) << text << " + " << token;
    if (taken) matcher.Rollback(1);
  }
}

int32_t RandomAllowed(const std::vector<uint32_t>& mask, Rng& rng) {
  std::vector<int32_t> allowed;
  for (int32_t i = 0; i < static_cast<int32_t>(mask.size() * 32); ++i) {
    if (Allows(mask, i)) allowed.push_back(i);
  }
  return allowed[rng.Below(static_cast<uint32_t>(allowed.size()))];
}

// A random answer; empty where it did not end.
std::string Walk(Matcher& matcher, Rng& rng, MaskCache& cache) {
  const Vocabulary& vocabulary = matcher.grammar().vocabulary();
  std::vector<uint32_t> mask(vocabulary.mask_words()), cached(mask);
  std::vector<std::string> texts{""};  // by tokens taken
  for (int step = 0; step < 120; ++step) {
    const MaskKind kind = matcher.FillMask(mask);
    EXPECT_EQ(matcher.FillMask(cached, cache), kind) << texts.back();
    EXPECT_EQ(cached, mask) << texts.back();
    EXPECT_NE(kind, MaskKind::kNone) << texts.back();
    if (step % 7 == 0) ExpectExactMask(matcher, mask, texts.back());
    const int32_t token = RandomAllowed(mask, rng);
    EXPECT_TRUE(matcher.Accept(token)) << texts.back() << " + " << token;
    if (matcher.ended()) return texts.back();
    texts.push_back(texts.back() + std::string(TokenBytes(vocabulary, token)));
    if (rng.Below(6) != 0) continue;
    const auto back = rng.Below(static_cast<uint32_t>(texts.size()));
    matcher.Rollback(static_cast<int32_t>(back));
    texts.resize(texts.size() - back);
  }
  return "";
}

TEST(CountedStrings, EveryMaskIsExactAndEveryAnswerWithinBounds) {
  const auto vocabulary = SmallVocabulary();
  const Bounds cases[][2] = {
      {{0, 0}, {0, 1}}, {{1, 1}, {2, 3}}, {{0, 5}, {0, 5}}, {{3, 3}, {1, 9}}, {{9, 30}, {0, 2}}};
  Rng rng(1);
  int ended = 0;
  for (const auto& [a, items] : cases) {
    const auto grammar = Compile(vocabulary, PairSchema(a, items));
    MaskCache cache(size_t{1} << 30);
    for (int walk = 0; walk < 60; ++walk) {
      Matcher matcher(grammar);
      const std::string text = Walk(matcher, rng, cache);
      if (text.empty()) continue;
      ++ended;
      simdjson::dom::parser parser;
      const simdjson::padded_string padded(text);
      simdjson::dom::object root;
      ASSERT_EQ(parser.parse(padded).get(root), simdjson::SUCCESS) << text;
      simdjson::dom::element string;
      ASSERT_EQ(root["a"].get(string), simdjson::SUCCESS) << text;
      ExpectWithin(string, a, text);
      simdjson::dom::array list;
      ASSERT_EQ(root["ab"].get(list), simdjson::SUCCESS) << text;
      for (const simdjson::dom::element item : list) ExpectWithin(item, items, text);
    }
  }
  EXPECT_GT(ended, 30);
}

// Characters of one to four bytes and escapes, as JSON spells them.
std::string RandomCharacters(size_t count, Rng& rng) {
  const char* const spelled[] = {
      "a",     "b",     "n",     " ",     "\xC3\xA9", "\xF0\x9F\x98\x80", "\xE6\xBC\xA2",
      R"(\n)", R"(\")", R"(\\)", R"(\/)", "\x7F"};
  std::string text;
  for (size_t i = 0; i < count; ++i) text += spelled[rng.Below(std::size(spelled))];
  return text;
}

TEST(CountedStrings, TakeExactlyTheLengthsBetweenTheBounds) {
  const auto vocabulary = SmallVocabulary();
  Rng rng(2);
  for (const Bounds& bounds : {Bounds{0, 0}, {1, 1}, {2, 7}, {40, 130}, {300, 4096}}) {
    const auto grammar = Compile(vocabulary, StringSchema(bounds));
    for (int trial = 0; trial < 20; ++trial) {
      for (const size_t count : {bounds.least - std::min<size_t>(1, bounds.least), bounds.least,
                                 (bounds.least + bounds.most) / 2, bounds.most, bounds.most + 1}) {
        Matcher matcher(grammar);
        const std::string text = '"' + RandomCharacters(count, rng) + '"';
        const bool fits = count >= bounds.least && count <= bounds.most;
        EXPECT_EQ(matcher.AcceptText(text) && matcher.complete(), fits) << text;
      }
    }
  }
}

TEST(CountedStrings, HoldCharactersOfUtf8AndNothingElse) {
  const auto grammar = Compile(SmallVocabulary(), StringSchema({1, 1}));
  for (const char* character :
       {" ", "\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF", "\xEE\x80\x80",
        "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(Matcher(grammar).AcceptText('"' + std::string(character) + '"')) << character;
  }
  // Overlong, halves of surrogates, beyond Unicode, cut off, no beginning; escapes of several
  // bytes.
  for (const char* bytes : {"\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF",
                            "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xC3",
                            "\xE6\xBC", "\x80", "\\u0041", "\\x", "\x1F"}) {
    EXPECT_FALSE(Matcher(grammar).AcceptText('"' + std::string(bytes) + '"')) << bytes;
  }
}

TEST(CountedStrings, OfSeveralBoundsInOnePlaceAnyMayBeMeant) {
  const std::string schema =
      fmt::format(R"({{"anyOf":[{},{},{{"type":"string","pattern":"^b*$"}}]}})",
                  StringSchema({1, 2}), StringSchema({5, 6}));
  const auto grammar = Compile(SmallVocabulary(), schema);
  std::vector<uint32_t> mask(grammar->vocabulary().mask_words());
  for (const char letter : {'a', 'b'}) {
    for (size_t count = 0; count < 9; ++count) {
      Matcher matcher(grammar);
      bool taken = matcher.Accept('"');
      for (size_t i = 0; i < count && taken; ++i) {
        matcher.FillMask(mask);
        ExpectExactMask(matcher, mask, std::to_string(i));
        taken = matcher.Accept(letter);
      }
      const bool any = letter == 'b' || count == 0;
      const bool fits = any || (count >= 1 && count <= 2) || (count >= 5 && count <= 6);
      EXPECT_EQ(taken && matcher.Accept('"'), fits) << letter << count;
    }
  }
}

TEST(CountedStrings, NamesOfPropertiesAreCountedToo) {
  const auto grammar = Compile(
      SmallVocabulary(), R"({"type":"object","propertyNames":{"minLength":2,"maxLength":300}})");
  EXPECT_TRUE(Matcher(grammar).AcceptText(R"({"ab":1,"abc":2})"));
  EXPECT_FALSE(Matcher(grammar).AcceptText(R"({"a":)"));
  EXPECT_TRUE(Matcher(grammar).AcceptText("{\"" + std::string(300, 'a') + "\":1"));
  EXPECT_FALSE(Matcher(grammar).AcceptText("{\"" + std::string(301, 'a')));
}

TEST(CountedStrings, ASchemaThatSpellsTheirMarkIsReadAsItIs) {
  const auto vocabulary = SmallVocabulary();
  const auto grammar = Compile(
      vocabulary, R"({"type":"object","properties":{"counted_1_2":{"type":"string","maxLength":1},
          "a":{"type":"string","pattern":"^counted_1_2$"},
          "b":{"type":"string","pattern":"^\u0063ountedx_1_2$"}},"required":["counted_1_2","a","b"]})");
  const std::string text = R"({"counted_1_2":"a","a":"counted_1_2","b":"countedx_1_2"})";
  Matcher matcher(grammar);
  EXPECT_TRUE(matcher.AcceptText(text) && matcher.complete());
  EXPECT_FALSE(Matcher(grammar).AcceptText(R"({"counted_1_2":"a","a":"a)"));
}

// Two schemas in tags, whose strings have other bounds.
std::string TagSource(const char* more) {
  return fmt::format(R"({{"type":"structural_tag","format":{{"type":"triggered_tags",
      "triggers":["<"],"tags":[
      {{"type":"tag","begin":"<f>","content":{{"type":"json_schema","json_schema":{}{}}},
        "end":"</f>"}},
      {{"type":"tag","begin":"<g>","content":{{"type":"json_schema","json_schema":{}}},
        "end":"</g>"}}]}}}})",
                     StringSchema({2, 300}), more, StringSchema({0, 3}));
}

TEST(CountedStrings, AreCountedInStructuralTagsToo) {
  for (const char* more : {"", R"(,"style":"json","max_whitespace_cnt":2)"}) {
    const auto grammar = CompiledGrammar::Compile(
                             SmallVocabulary(), {GrammarKind::kStructuralTag, TagSource(more), "f"})
                             .value();
    const auto accepts = [&](const std::string& text) {
      Matcher matcher(grammar);
      return matcher.AcceptText(text) && matcher.complete();
    };
    EXPECT_TRUE(accepts("a \\ b <f>\"" + std::string(300, 'a') + "\"</f> c")) << more;
    EXPECT_FALSE(accepts("<f>\"" + std::string(301, 'a') + "\"</f>")) << more;
    EXPECT_FALSE(accepts("\\<f>\"a\"</f>")) << more;
    EXPECT_TRUE(accepts("\\<f>\"ab\"</f>\\<g>\"abc\"</g>")) << more;
    EXPECT_FALSE(accepts("<g>\"abcd\"</g>")) << more;
  }
}

TEST(CountedStrings, ABudgetBesideThemLeavesTheirBounds) {
  const std::string source = R"({"type":"structural_tag","format":{"type":"sequence","elements":[
      {"type":"tag","begin":"","content":{"type":"any_text","max_tokens":2},"end":"<e>"},
      {"type":"json_schema","json_schema":{"type":"string","minLength":1,"maxLength":3}}]}})";
  const auto grammar =
      CompiledGrammar::Compile(SmallVocabulary(), {GrammarKind::kStructuralTag, source, "f"})
          .value();
  EXPECT_TRUE(Matcher(grammar).AcceptText("a<e>\"abc\""));
  EXPECT_FALSE(Matcher(grammar).AcceptText("a<e>\"abcd"));
  EXPECT_FALSE(Matcher(grammar).AcceptText("a<e>\"\""));
}

TEST(CountedStrings, OfAnyLengthCompileToLittle) {
  const auto vocabulary = SmallVocabulary();
  const size_t small = Compile(vocabulary, StringSchema({1, 2}))->memory_bytes();
  EXPECT_LT(Compile(vocabulary, StringSchema({1000, 1'000'000}))->memory_bytes(), small + 4096);
  EXPECT_TRUE(
      CompiledGrammar::Compile(vocabulary, {GrammarKind::kJsonSchema,
                                            R"({"type":"string","maxLength":99999999999999})", "f"})
          .ok());
}

}  // namespace
}  // namespace hayate::grammar
