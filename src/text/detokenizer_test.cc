#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "text/detail/utf8.h"
#include "text/testing/small_tokenizers.h"

namespace hayate::text {
namespace {

std::string Repair(std::string_view bytes) {
  std::string out;
  Utf8Repairer repairer;
  repairer.Push(bytes, out);
  repairer.Flush(out);
  return out;
}

TEST(Utf8Repairer, ReplacesEachMaximalSubpartOnce) {
  // The examples of Unicode 15, section 3.9, tables 3-8 to 3-11.
  const std::string r = "\uFFFD";
  EXPECT_EQ(Repair("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Repair("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(Repair("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(Repair("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(Repair("\xF0\x9F\xA6\x99é\u4E2D"), "🦙é中");
  EXPECT_EQ(Repair("\xF0\x9F\xA6"), r);
}

class DetokenizerSplits : public ::testing::TestWithParam<bool> {
 protected:
  static std::shared_ptr<const Tokenizer> MakeTokenizer() {
    if (GetParam())
      return testing::Make(testing::MetaspaceSpec({"▁", "a", "▁a", "▁▁", "é", "🙂"}));
    TokenizerSpec spec = testing::ByteLevelSpec({{"\xF0", "\x9F"}, {"\xC3", "\xA9"}, {" ", "a"}});
    spec.added_tokens = {{.content = "<|x|>", .id = 270, .special = true},
                         {.content = "é!", .id = 271}};
    return testing::Make(spec);
  }
};

TEST_P(DetokenizerSplits, AnySplitGivesTheWholeText) {
  const auto tokenizer = MakeTokenizer();
  // Ids that are likely to form characters, and every other id now and then.
  std::vector<int32_t> likely;
  for (const char byte : std::string("🙂é中a ")) {
    likely.push_back(*tokenizer->FindToken(std::string(1, byte)));
  }
  Rng rng(11);
  for (int round = 0; round < 3000; ++round) {
    std::vector<int32_t> ids;
    for (uint32_t n = rng.Below(20); n > 0; --n) {
      const auto any =
          static_cast<int32_t>(rng.Below(static_cast<uint32_t>(tokenizer->vocab_size() + 3))) - 1;
      ids.push_back(rng.Below(4) == 0 ? any
                                      : likely[rng.Below(static_cast<uint32_t>(likely.size()))]);
    }
    const SkipSpecial skip = rng.Below(2) == 0 ? SkipSpecial::kYes : SkipSpecial::kNo;
    Detokenizer detokenizer(tokenizer, {.skip_special = skip});
    std::string joined;
    for (size_t i = 0; i < ids.size();) {
      const size_t count = std::min<size_t>(rng.Below(4), ids.size() - i);
      const std::string delta = detokenizer.Push(std::span(ids).subspan(i, count));
      ASSERT_EQ(FindInvalidUtf8(delta), std::string::npos);
      joined += delta;
      i += count;
    }
    joined += detokenizer.Flush();
    ASSERT_EQ(joined, tokenizer->Decode(ids, skip));
    ASSERT_EQ(FindInvalidUtf8(joined), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, DetokenizerSplits, ::testing::Values(false, true));

TEST(Detokenizer, HoldsBackOnlyTheUnfinishedCharacter) {
  const auto tokenizer = testing::Make(testing::ByteLevelSpec({}));
  Detokenizer detokenizer(tokenizer);
  EXPECT_EQ(detokenizer.Push('a'), "a");
  EXPECT_EQ(detokenizer.Push(0xC3), "");
  EXPECT_EQ(detokenizer.Push(0xA9), "é");
  EXPECT_EQ(detokenizer.Push(0xF0), "");
  EXPECT_EQ(detokenizer.Push('b'), "\uFFFDb");
  EXPECT_EQ(detokenizer.Push(0xE4), "");
  EXPECT_EQ(detokenizer.Flush(), "\uFFFD");
  EXPECT_EQ(detokenizer.Flush(), "");
}

TEST(Detokenizer, TheLeadingSpaceIsDroppedAtTheStartOfATextOnly) {
  const auto tokenizer = testing::Make(testing::MetaspaceSpec({"▁", "a", "▁a"}));
  const int32_t spaced = *tokenizer->FindToken(" a");
  const int32_t bos = *tokenizer->FindToken("<s>");
  Detokenizer start(tokenizer);
  EXPECT_EQ(start.Push(std::vector<int32_t>{bos, spaced, spaced}), "a a");
  start.Flush();
  EXPECT_EQ(start.Push(spaced), "a");
  Detokenizer middle(tokenizer, {.position = TextPosition::kMiddle});
  EXPECT_EQ(middle.Push(std::vector<int32_t>{spaced, spaced}), " a a");
}

TEST(Detokenizer, SkipsSpecialTokensOnRequest) {
  TokenizerSpec spec = testing::ByteLevelSpec({});
  spec.added_tokens = {{.content = "<|end|>", .id = 256, .special = true},
                       {.content = "<think>", .id = 257}};
  const auto tokenizer = testing::Make(spec);
  const std::vector<int32_t> ids = {'a', 256, 257, 'b', 9999, -1};
  EXPECT_EQ(Detokenizer(tokenizer).Push(ids), "a<think>b");
  EXPECT_EQ(Detokenizer(tokenizer, {.skip_special = SkipSpecial::kNo}).Push(ids),
            "a<|end|><think>b");
}

}  // namespace
}  // namespace hayate::text
