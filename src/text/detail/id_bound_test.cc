#include "text/detail/id_bound.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "text/testing/small_tokenizers.h"

namespace hayate::text {
namespace {

TEST(IdBound, CountsTheLongestTokenForEveryByte) {
  const auto tokenizer = testing::Make(testing::ByteLevelSpec({{"a", "a"}, {"aa", "aa"}}));
  EXPECT_EQ(tokenizer->MinIds(std::string(4000, 'a')), 1000u);
  EXPECT_EQ(tokenizer->MinIds(""), 0u);
}

TEST(IdBound, NoTextHasFewerIds) {
  TokenizerSpec nfc = testing::ByteLevelSpec({{"a", "b"}, {"ab", "c"}});
  nfc.normalizer = {UnicodeForm::kNfc};
  TokenizerSpec lossy = testing::ByteLevelSpec({{"a", "b"}});
  lossy.bpe.tokens['\x04'] = "";
  lossy.bpe.tokens[0xE1] = "";
  const std::shared_ptr<const Tokenizer> tokenizers[] = {
      testing::Make(testing::MetaspaceSpec({"a", "b", "\u2581", "\u2581a", "\u2581ab"})),
      testing::Make(nfc), testing::Make(lossy)};
  // Hangul jamo and the grave accent that NFC makes an ASCII letter shrink the most.
  const char* const parts[] = {"abc", "a",      " ",      "\u2581", "\x04", "\u1100\u1161\u11a8",
                               "z",   "\u1fef", "\u4e00", "\n",     "ab "};
  Rng rng(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    const char* const favourite = parts[rng.Below(11)];
    for (uint32_t i = rng.Below(60); i > 0; --i) {
      text += rng.Below(3) == 0 ? parts[rng.Below(11)] : favourite;
    }
    for (const auto& tokenizer : tokenizers) {
      const auto ids = tokenizer->Encode(text, {.add_bos_eos = AddBosEos::kNo});
      ASSERT_TRUE(ids.ok());
      EXPECT_LE(tokenizer->MinIds(text), ids->size()) << text;
    }
  }
}

TEST(IdBound, IsNoneWhereTextCanVanish) {
  TokenizerSpec strips = testing::ByteLevelSpec({});
  strips.normalizer = {StripSide::kBoth};
  TokenizerSpec swallows = testing::ByteLevelSpec({});
  swallows.added_tokens = {{.content = "<L>", .id = 300, .lstrip = true}};
  TokenizerSpec removes = testing::ByteLevelSpec({});
  removes.pre_tokenizer = {SplitText{.pattern = "\\s+", .behavior = SplitBehavior::kRemoved}};
  for (const TokenizerSpec& spec : {strips, swallows, removes}) {
    EXPECT_EQ(testing::Make(spec)->MinIds(std::string(1 << 20, ' ')), 0u);
  }
}

}  // namespace
}  // namespace hayate::text
