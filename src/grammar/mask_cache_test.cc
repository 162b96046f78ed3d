// Masks from the cache are those that the matcher fills.

#include "grammar/mask_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "grammar/matcher.h"
#include "text/testing/small_tokenizers.h"

namespace hayate::grammar {
namespace {

constexpr size_t kNoLimit = size_t{1} << 30;

// Bytes and tokens that end a string, a list or an object of JSON and begin the next.
std::shared_ptr<const Vocabulary> SmallVocabulary() {
  const std::vector<std::pair<std::string, std::string>> merges = {
      {"\"", ","}, {"\"", "}"}, {"\"", ":"}, {"\"", "]"}, {"a", "\""},  {"a\"", ","}, {"\",", "\""},
      {",", " "},  {",", "\""}, {"{", "\""}, {"[", "["},  {"]", "]"},   {"]", "}"},   {"]}", "}"},
      {"1", "2"},  {"1", ","},  {"12", "]"}, {"a", "b"},  {"ab", "ab"}, {"\\", "n"},  {"}", ","}};
  text::TokenizerSpec spec = text::testing::ByteLevelSpec(merges);
  const auto end = static_cast<int32_t>(256 + merges.size());
  spec.added_tokens.push_back({.content = "<|end|>", .id = end, .special = true});
  return Vocabulary::Create(*text::testing::Make(std::move(spec)),
                            {.vocab_size = end + 1, .stop_ids = {end}, .marker_ids = {}})
      .value();
}

const GrammarSource kSources[] = {
    {GrammarKind::kJsonObject, "", "f"},
    {GrammarKind::kJsonSchema,
     R"({"type":"object","properties":{"a":{"type":"string","maxLength":5},"ab":{"type":"array",
         "items":{"type":"integer"},"maxItems":4},"b":{"type":"object","properties":{
         "a":{"type":"string"}},"additionalProperties":true}},"required":["a"]})",
     "f"},
    {GrammarKind::kJsonSchema,
     R"({"$ref":"#/$defs/N","$defs":{"N":{"anyOf":[{"enum":["ab","a,b"]},{"type":"array",
         "items":{"$ref":"#/$defs/N"}}]}}})",
     "f"},
    {GrammarKind::kRegex, "(a{2,120}b|(ab)*\"[12],)+", "f"},
    {GrammarKind::kEbnf, "root ::= \"[\" (root | [ab]+ \",\")* \"]\"", "f"},
    // Budgets and tokens named by id are not cached.
    {GrammarKind::kStructuralTag,
     R"({"type":"structural_tag","format":{"type":"sequence","elements":[{"type":"tag","begin":"a",
         "content":{"type":"any_text","max_tokens":3},"end":"b"},{"type":"json_schema",
         "json_schema":{"type":"string"}}]}})",
     "f"},
};

int32_t RandomAllowed(const std::vector<uint32_t>& mask, Rng& rng) {
  std::vector<int32_t> allowed;
  for (size_t i = 0; i < mask.size() * 32; ++i) {
    if ((mask[i / 32] >> (i % 32) & 1) != 0) allowed.push_back(static_cast<int32_t>(i));
  }
  return allowed[rng.Below(static_cast<uint32_t>(allowed.size()))];
}

TEST(MaskCache, GivesTheMasksThatTheMatcherFills) {
  const auto vocabulary = SmallVocabulary();
  MaskCache cache(kNoLimit);
  std::vector<std::shared_ptr<const CompiledGrammar>> grammars;
  for (const GrammarSource& source : kSources) {
    grammars.push_back(CompiledGrammar::Compile(vocabulary, source).value());
  }
  Rng rng(1);
  std::vector<uint32_t> filled(vocabulary->mask_words()), found(vocabulary->mask_words());
  for (int walk = 0; walk < 400; ++walk) {
    Matcher matcher(grammars[static_cast<size_t>(walk) % grammars.size()]);
    for (int32_t taken = 0; taken < 40 && !matcher.ended(); ++taken) {
      const MaskKind kind = matcher.FillMask(found, cache);
      ASSERT_EQ(kind, matcher.FillMask(filled)) << walk;
      ASSERT_EQ(found, filled) << walk;
      if (kind == MaskKind::kNone) break;
      const int32_t token = RandomAllowed(filled, rng);
      ASSERT_TRUE(matcher.Accept(token)) << walk << ' ' << taken << ' ' << token;
      if (rng.Below(5) == 0) {
        const auto back = static_cast<int32_t>(rng.Below(static_cast<uint32_t>(taken) + 2));
        matcher.Rollback(back);
        taken -= back;
      }
    }
  }
  EXPECT_GT(cache.stats().hits, 5 * cache.stats().misses);
}

TEST(MaskCache, FindsAPlaceAgainHoweverLongTheTextBeforeIt) {
  const auto grammar = CompiledGrammar::Compile(SmallVocabulary(), kSources[0]).value();
  MaskCache cache(kNoLimit);
  std::vector<uint32_t> mask(grammar->vocabulary().mask_words());
  Matcher matcher(grammar);
  ASSERT_TRUE(matcher.AcceptText("{\"a"));
  matcher.FillMask(mask, cache);
  const uint64_t misses = cache.stats().misses;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(matcher.AcceptText("ab"));
    matcher.FillMask(mask, cache);
  }
  EXPECT_EQ(cache.stats().misses, misses);
}

TEST(MaskCache, DeepNestingIsFilledWithoutIt) {
  const auto grammar = CompiledGrammar::Compile(SmallVocabulary(), kSources[4]).value();
  MaskCache cache(kNoLimit);
  std::vector<uint32_t> filled(grammar->vocabulary().mask_words()), found(filled);
  Matcher matcher(grammar);
  for (int i = 0; i < 3000; ++i) ASSERT_TRUE(matcher.Accept('['));
  EXPECT_EQ(matcher.FillMask(found, cache), matcher.FillMask(filled));
  EXPECT_EQ(found, filled);
}

TEST(MaskCache, KeepsItsLimitAndForgetsTheLeastRecentlyUsed) {
  MaskCache cache(10'000);
  const std::vector<uint32_t> bits(100, 7);
  for (int32_t i = 0; i < 200; ++i) {
    cache.Put(std::vector<int32_t>{i}, MaskKind::kSome, bits);
    ASSERT_NE(cache.Find(std::vector<int32_t>{0}), nullptr);
    ASSERT_LE(cache.stats().bytes, 10'000u);
  }
  EXPECT_EQ(cache.Find(std::vector<int32_t>{1}), nullptr);
  ASSERT_NE(cache.Find(std::vector<int32_t>{199}), nullptr);
  EXPECT_EQ(cache.Find(std::vector<int32_t>{199})->bits, bits);
  cache.Put(std::vector<int32_t>{7}, MaskKind::kAll, std::vector<uint32_t>(100'000));
  EXPECT_LE(cache.stats().bytes, 10'000u);
}

TEST(MaskCache, TellsGrammarsApartThatLieInOnePlaceOneAfterTheOther) {
  const auto vocabulary = SmallVocabulary();
  MaskCache cache(kNoLimit);
  std::vector<uint32_t> mask(vocabulary->mask_words());
  for (int i = 0; i < 50; ++i) {
    const std::string letter(1, static_cast<char>('a' + i % 26));
    const auto grammar =
        CompiledGrammar::Compile(vocabulary, {GrammarKind::kRegex, letter, "f"}).value();
    Matcher(grammar).FillMask(mask, cache);
    EXPECT_NE(mask[static_cast<size_t>(letter[0]) / 32] >> (letter[0] % 32) & 1, 0u) << i;
  }
}

}  // namespace
}  // namespace hayate::grammar
