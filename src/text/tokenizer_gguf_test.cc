#include "text/tokenizer_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "text/testing/small_tokenizers.h"
#include "text/tokenizer.h"

namespace hayate::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

GgufTokenizerData ByteLevelData() {
  return {.model = "gpt2",
          .pre = "smollm",
          .tokens = {"<|end|>", "a", "b", "ab", "1", "Ġ", "<u>"},
          .token_types = {3, 1, 1, 1, 1, 1, 4},
          .merges = {"a b"},
          .bos_id = 0,
          .eos_id = 0};
}

TEST(TokenizerGguf, ReadsAByteLevelVocabulary) {
  const auto tokenizer = testing::Make(*MakeTokenizerSpec(ByteLevelData()));
  EXPECT_THAT(*tokenizer->Encode("ab11<|end|> <u>"), ElementsAre(3, 4, 4, 0, 5, 6));
  EXPECT_TRUE(tokenizer->IsSpecial(0));
  EXPECT_FALSE(tokenizer->IsSpecial(6));
  EXPECT_EQ(tokenizer->bos_id(), 0);
}

TEST(TokenizerGguf, ThePreTokenizerDecidesWhetherBosIsAddedUnlessTheFileDoes) {
  GgufTokenizerData data = ByteLevelData();
  EXPECT_TRUE(MakeTokenizerSpec(data)->prefix_ids.empty());
  data.pre = "llama-bpe";
  EXPECT_THAT(MakeTokenizerSpec(data)->prefix_ids, ElementsAre(0));
  data.add_bos = false;
  data.add_eos = true;
  EXPECT_TRUE(MakeTokenizerSpec(data)->prefix_ids.empty());
  EXPECT_THAT(MakeTokenizerSpec(data)->suffix_ids, ElementsAre(0));
}

TEST(TokenizerGguf, ErrorsNameTheKey) {
  const auto message = [](auto change) {
    GgufTokenizerData data = ByteLevelData();
    change(data);
    return MakeTokenizerSpec(std::move(data)).status().message();
  };
  EXPECT_THAT(message([](auto& data) { data.model = "bert"; }),
              HasSubstr("tokenizer.ggml.model: 'bert'"));
  EXPECT_THAT(message([](auto& data) { data.pre = "nosuch"; }),
              HasSubstr("pre-tokenizer 'nosuch' is not known"));
  EXPECT_THAT(message([](auto& data) { data.tokens.clear(); }), HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(message([](auto& data) { data.merges.push_back("ab"); }),
              HasSubstr("tokenizer.ggml.merges[1]: 'ab' has no space"));
  EXPECT_THAT(message([](auto& data) { data.merges.push_back("b a"); }),
              HasSubstr("tokenizer.ggml.merges[1]: 'b' + 'a'"));
  EXPECT_THAT(message([](auto& data) { data.model = "llama"; }),
              HasSubstr("tokenizer.ggml.scores: 0 values for 7 tokens"));
  EXPECT_THAT(message([](auto& data) {
                data.model = "llama";
                data.scores.assign(7, NAN);
              }),
              HasSubstr("tokenizer.ggml.tokens[0]"));
}

// SentencePiece's own rule: join the neighbours whose join scores best, the leftmost of equals.
std::vector<std::string> JoinByScore(std::vector<std::string> parts,
                                     const std::vector<std::string>& pieces) {
  while (true) {
    size_t best_score = pieces.size(), best_at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = std::find(pieces.begin(), pieces.end(), parts[i] + parts[i + 1]);
      const auto score = static_cast<size_t>(found - pieces.begin());
      if (score < best_score) {
        best_score = score;
        best_at = i;
      }
    }
    if (best_score == pieces.size()) return parts;
    parts[best_at] += parts[best_at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best_at) + 1);
  }
}

TEST(TokenizerGguf, ScoresMergeAsSentencePieceDoes) {
  Rng rng(3);
  for (int round = 0; round < 30; ++round) {
    std::vector<std::string> pieces = {"▁", "a", "b", "c"};
    for (int i = 0; i < 40; ++i) {
      std::string piece = rng.Below(3) == 0 ? "▁" : "";
      for (uint32_t n = rng.Below(4) + 1; n > 0; --n)
        piece += static_cast<char>('a' + rng.Below(3));
      if (std::find(pieces.begin(), pieces.end(), piece) == pieces.end()) pieces.push_back(piece);
    }
    const auto tokenizer = testing::Make(testing::MetaspaceSpec(pieces));
    std::string text;
    std::vector<std::string> parts = {"▁"};
    for (uint32_t n = rng.Below(120); n > 0; --n) {
      const char c = "abc "[rng.Below(4)];
      text += c;
      parts.push_back(c == ' ' ? "▁" : std::string(1, c));
    }
    if (text.empty()) continue;
    std::vector<std::string> found;
    const std::vector<int32_t> ids = *tokenizer->Encode(text, {.add_bos_eos = AddBosEos::kNo});
    for (const int32_t id : ids) {
      found.push_back(pieces[static_cast<size_t>(id - 259)]);
    }
    EXPECT_EQ(found, JoinByScore(parts, pieces)) << text;
  }
}

}  // namespace
}  // namespace hayate::text
