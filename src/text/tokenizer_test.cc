#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/rng.h"
#include "text/testing/small_tokenizers.h"
#include "text/tokenizer_patterns.h"

namespace hayate::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Ids = std::vector<int32_t>;

Ids Encode(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options = {}) {
  return *tokenizer.Encode(text, options);
}

// The definition of BPE: merge the best-ranked pair, the leftmost of equals, until none is left.
Ids NaiveMerge(Ids ids, const std::vector<MergeRule>& rules) {
  while (true) {
    const MergeRule* best = nullptr;
    size_t best_at = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (const MergeRule& rule : rules) {
        if (rule.left == ids[i] && rule.right == ids[i + 1] && (!best || rule.rank < best->rank)) {
          best = &rule;
          best_at = i;
        }
      }
    }
    if (best == nullptr) return ids;
    ids[best_at] = best->result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

TEST(Tokenizer, MergesInRankOrderAtAnyLength) {
  Rng rng(7);
  for (int round = 0; round < 20; ++round) {
    // Random merges over three letters, each of two tokens that exist already.
    std::vector<std::string> words = {"a", "b", "c"};
    std::vector<std::pair<std::string, std::string>> merges;
    while (merges.size() < 25) {
      const std::string left = words[rng.Below(static_cast<uint32_t>(words.size()))];
      const std::string right = words[rng.Below(static_cast<uint32_t>(words.size()))];
      if (std::find(words.begin(), words.end(), left + right) != words.end()) continue;
      merges.emplace_back(left, right);
      words.push_back(left + right);
    }
    const TokenizerSpec spec = testing::ByteLevelSpec(merges);
    const auto tokenizer = testing::Make(spec);
    for (const int length : {1, 2, 3, 7, 20, 47, 48, 49, 50, 120, 400}) {
      std::string text;
      for (int i = 0; i < length; ++i) text += static_cast<char>('a' + rng.Below(3));
      const Ids bytes(text.begin(), text.end());
      EXPECT_EQ(Encode(*tokenizer, text), NaiveMerge(bytes, spec.bpe.merges)) << text;
    }
  }
}

TEST(Tokenizer, ATokenThatMergesCannotReachIsOnlyUsedWhenMergesAreIgnored) {
  TokenizerSpec spec = testing::ByteLevelSpec({{"a", "b"}});
  spec.bpe.tokens.push_back("xyz");
  EXPECT_THAT(Encode(*testing::Make(spec), "xyz"), ElementsAre('x', 'y', 'z'));
  spec.bpe.ignore_merges = true;
  EXPECT_THAT(Encode(*testing::Make(spec), "xyz"), ElementsAre(257));
}

TEST(Tokenizer, SplitBehavioursCutWhereTheyShould) {
  const auto pieces = [](SplitBehavior behavior, SplitAt at) {
    // Without merges, a piece boundary is invisible; so let every pair of bytes in "a-b--c" merge.
    TokenizerSpec spec = testing::ByteLevelSpec(
        {{"-", "-"}, {"a", "-"}, {"-", "b"}, {"b", "-"}, {"-", "c"}, {"a-", "b"}, {"--", "c"}});
    spec.pre_tokenizer = {SplitText{"-", behavior, at}};
    const auto tokenizer = testing::Make(spec);
    std::string joined;
    for (const int32_t id : Encode(*tokenizer, "a-b--c")) {
      joined += std::string(tokenizer->TokenBytes(id)) + "|";
    }
    return joined;
  };
  EXPECT_EQ(pieces(SplitBehavior::kIsolated, SplitAt::kMatches), "a|-|b|-|-|c|");
  EXPECT_EQ(pieces(SplitBehavior::kRemoved, SplitAt::kMatches), "a|b|c|");
  EXPECT_EQ(pieces(SplitBehavior::kRemoved, SplitAt::kGaps), "-|-|-|");
  EXPECT_EQ(pieces(SplitBehavior::kMergedWithPrevious, SplitAt::kMatches), "a-|b-|-|c|");
  EXPECT_EQ(pieces(SplitBehavior::kMergedWithNext, SplitAt::kMatches), "a|-b|-|-c|");
  EXPECT_EQ(pieces(SplitBehavior::kContiguous, SplitAt::kMatches), "a|-|b|--|c|");
}

TokenizerSpec SpecWithAddedTokens() {
  TokenizerSpec spec = testing::ByteLevelSpec({});
  spec.added_tokens = {
      {.content = "<L>", .id = 300, .special = true, .lstrip = true},
      {.content = "<R>", .id = 301, .rstrip = true},
      {.content = "<W>", .id = 302, .single_word = true},
      {.content = "<L><W>", .id = 303},
  };
  return spec;
}

TEST(Tokenizer, AddedTokensSwallowSpaceAndKnowWords) {
  const auto tokenizer = testing::Make(SpecWithAddedTokens());
  EXPECT_THAT(Encode(*tokenizer, "x \t<L> y"), ElementsAre('x', 300, ' ', 'y'));
  EXPECT_THAT(Encode(*tokenizer, "x <R>\n y"), ElementsAre('x', ' ', 301, 'y'));
  EXPECT_THAT(Encode(*tokenizer, "<R>\u3000<L>"), ElementsAre(301, 300));
  EXPECT_THAT(Encode(*tokenizer, "-<W>-"), ElementsAre('-', 302, '-'));
  EXPECT_THAT(Encode(*tokenizer, "a<W>"), ElementsAre('a', '<', 'W', '>'));
  EXPECT_THAT(Encode(*tokenizer, "<L><W>"), ElementsAre(303));
  EXPECT_EQ(tokenizer->vocab_size(), 304);
}

TEST(Tokenizer, SpecialTokensCanBePlainText) {
  const auto tokenizer = testing::Make(SpecWithAddedTokens());
  const EncodeOptions as_text{.special_tokens = SpecialTokens::kAsText};
  EXPECT_THAT(Encode(*tokenizer, " <L><R>", as_text), ElementsAre(' ', '<', 'L', '>', 301));
  EXPECT_TRUE(tokenizer->IsSpecial(300));
  EXPECT_FALSE(tokenizer->IsSpecial(301));
  EXPECT_FALSE(tokenizer->IsSpecial(-1));
  EXPECT_FALSE(tokenizer->IsSpecial(1 << 30));
}

TEST(Tokenizer, FindsTokensByTheirBytes) {
  TokenizerSpec spec = SpecWithAddedTokens();
  spec.bpe.tokens.push_back("Ġthe");
  const auto tokenizer = testing::Make(spec);
  EXPECT_EQ(tokenizer->FindToken(" the"), 256);
  EXPECT_EQ(tokenizer->FindToken("<L>"), 300);
  EXPECT_EQ(tokenizer->FindToken("\xFF"), 255);
  EXPECT_EQ(tokenizer->FindToken("Ġthe"), std::nullopt);
  EXPECT_EQ(tokenizer->TokenBytes(256), " the");
  EXPECT_EQ(tokenizer->TokenBytes(290), "");
  EXPECT_EQ(tokenizer->TokenBytes(-5), "");
}

TEST(Tokenizer, CharactersWithoutATokenFallBackToBytesThenToUnknown) {
  TokenizerSpec spec = testing::MetaspaceSpec({"▁", "a", "▁a"});
  const auto tokenizer = testing::Make(spec);
  EXPECT_THAT(Encode(*tokenizer, "a é"), ElementsAre(1, 261, 259, 3 + 0xC3, 3 + 0xA9));
  EXPECT_EQ(tokenizer->Decode(Encode(*tokenizer, "a é"), SkipSpecial::kYes), "a é");
  EXPECT_EQ(tokenizer->TokenBytes(3 + '\n'), "\n");
  EXPECT_EQ(tokenizer->TokenBytes(261), " a");

  spec.bpe.tokens[3 + 0xC3] = "";
  EXPECT_THAT(Encode(*testing::Make(spec), "éè"), ElementsAre(1, 259, 0));
}

TEST(Tokenizer, WordsAreIndependentOnlyWhenNoMergeCrossesThem) {
  // "a▁" joins a word with the next marker, so the text must be merged as a whole.
  const auto crossing = testing::Make(testing::MetaspaceSpec({"a▁", "▁a", "▁", "a"}));
  EXPECT_THAT(Encode(*crossing, "a a"), ElementsAre(1, 261, 259, 262));
  const auto separate = testing::Make(testing::MetaspaceSpec({"▁a", "▁", "a", "▁▁"}));
  EXPECT_THAT(Encode(*separate, "a a"), ElementsAre(1, 259, 259));
  EXPECT_THAT(Encode(*separate, "a   a"), ElementsAre(1, 259, 262, 259));
}

TEST(Tokenizer, NormalizesBeforeItCuts) {
  TokenizerSpec spec = testing::ByteLevelSpec({{"\xC3", "\xA9"}});
  spec.normalizer = {UnicodeForm::kNfc, SubstitutePattern{"x+", "y"}, StripSide::kBoth};
  spec.added_tokens = {{.content = "xx!", .id = 300, .normalized = true}};
  const auto tokenizer = testing::Make(spec);
  EXPECT_THAT(Encode(*tokenizer, " e\u0301xxx "), ElementsAre(256, 'y'));
  EXPECT_THAT(Encode(*tokenizer, "xxxxx!"), ElementsAre(300));
  EXPECT_EQ(tokenizer->Decode(Ids{300}, SkipSpecial::kNo), "y!");
}

TEST(Tokenizer, PutsBosAndEosAroundOnRequest) {
  TokenizerSpec spec = testing::ByteLevelSpec({});
  spec.prefix_ids = {7};
  spec.suffix_ids = {8};
  const auto tokenizer = testing::Make(spec);
  EXPECT_THAT(Encode(*tokenizer, "a"), ElementsAre(7, 'a', 8));
  EXPECT_THAT(Encode(*tokenizer, ""), ElementsAre(7, 8));
  EXPECT_THAT(Encode(*tokenizer, "", {.add_bos_eos = AddBosEos::kNo}), IsEmpty());
}

TEST(Tokenizer, RefusesTextThatIsNotUtf8OrTooLong) {
  const auto tokenizer = testing::Make(testing::ByteLevelSpec({}));
  EXPECT_THAT(tokenizer->Encode("ab\xC3(").status().message(), HasSubstr("not UTF-8 at byte 2"));
  const std::string text(Tokenizer::kMaxTextBytes + 1, 'a');
  EXPECT_EQ(tokenizer->Encode(text).status().code(), ErrorCode::kPayloadTooLarge);
}

TEST(Tokenizer, APatternThatBacktracksWithoutEndIsAnErrorNotAHang) {
  TokenizerSpec spec = testing::ByteLevelSpec({});
  spec.pre_tokenizer = {SplitText{"(a|aa)+[bc]"}};
  const auto tokenizer = testing::Make(spec);
  EXPECT_THAT(tokenizer->Encode(std::string(2000, 'a')).status().message(),
              HasSubstr("backtracks too long"));
}

TEST(Tokenizer, LongRunsPassTheKnownPatterns) {
  for (const std::string_view pattern :
       {kGpt2Pattern, kLlama3Pattern, kQwen35Pattern, kO200kPattern, kDeepSeekV3Pattern}) {
    TokenizerSpec spec = testing::ByteLevelSpec({});
    spec.pre_tokenizer = {SplitText{std::string(pattern)}};
    const auto tokenizer = testing::Make(spec);
    for (const std::string_view unit : {" ", "\n", "a", "A", "1", "!", "é", "中", " \n"}) {
      std::string text;
      while (text.size() < (size_t{1} << 20)) text += unit;
      ASSERT_EQ(Encode(*tokenizer, text).size(), text.size()) << pattern << " on " << unit;
    }
  }
}

TEST(Tokenizer, RefusesSpecsThatDoNotHoldTogether) {
  const auto message = [](TokenizerSpec spec) {
    return Tokenizer::Create(std::move(spec)).status().message();
  };
  EXPECT_THAT(message({}), HasSubstr("vocabulary of 0 tokens"));
  TokenizerSpec spec = testing::ByteLevelSpec({});
  spec.bpe.merges = {{1, 2, 999, 0}};
  EXPECT_THAT(message(spec), HasSubstr("merge 0"));
  spec = testing::ByteLevelSpec({});
  spec.added_tokens = {{.content = "x", .id = -1}};
  EXPECT_THAT(message(spec), HasSubstr("added token 'x'"));
  spec = testing::ByteLevelSpec({});
  spec.prefix_ids = {256};
  EXPECT_THAT(message(spec), HasSubstr("prefix: id 256 is not in [0, 256)"));
  spec = testing::ByteLevelSpec({});
  spec.pre_tokenizer = {SplitText{"(a"}};
  EXPECT_THAT(message(spec), HasSubstr("pattern '(a'"));
  spec.pre_tokenizer = {SplitText{"[a-z&&[^b]]"}};
  EXPECT_EQ(Tokenizer::Create(spec).status().code(), ErrorCode::kUnsupported);
}

TEST(Tokenizer, OneObjectServesManyThreads) {
  TokenizerSpec spec = testing::ByteLevelSpec({{"a", "b"}, {"ab", "c"}});
  spec.pre_tokenizer = {SplitText{std::string(kLlama3Pattern)}};
  const auto tokenizer = testing::Make(spec);
  std::string text;
  for (int i = 0; i < 2000; ++i) text += "abc ab 12 cab's\n";
  const Ids expected = Encode(*tokenizer, text);
  std::vector<Ids> found(4);
  std::vector<std::thread> threads;
  for (Ids& ids : found) {
    threads.emplace_back([&ids, &tokenizer, &text] { ids = Encode(*tokenizer, text); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Ids& ids : found) EXPECT_EQ(ids, expected);
}

}  // namespace
}  // namespace hayate::text
