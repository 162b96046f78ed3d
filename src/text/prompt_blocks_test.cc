#include "text/prompt_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/rng.h"

namespace hayate::text {
namespace {

std::string RandomText(Rng& rng, size_t size) {
  std::string text(size, ' ');
  for (char& c : text) c = static_cast<char>(rng.Below(256));
  return text;
}

PromptBlocks BlocksOf(std::string_view prompt, uint64_t seed = 0, size_t block_bytes = 64) {
  PromptBlocks blocks;
  HashPrompt(prompt, seed, block_bytes, blocks);
  return blocks;
}

TEST(PromptBlocks, AgreeExactlyAsFarAsThePromptsDo) {
  Rng rng(1);
  for (int round = 0; round < 300; ++round) {
    const std::string one = RandomText(rng, rng.Below(40'000));
    std::string two = one.substr(0, rng.Below(static_cast<uint32_t>(one.size() + 1)));
    const size_t common = two.size();
    two += RandomText(rng, rng.Below(5'000));
    const auto end = std::mismatch(one.begin(), one.end(), two.begin(), two.end()).first;
    const auto agree = static_cast<size_t>(end - one.begin());
    ASSERT_GE(agree, common);
    const size_t block_bytes = size_t{8} << rng.Below(6);
    const PromptBlocks a = BlocksOf(one, 7, block_bytes);
    const PromptBlocks b = BlocksOf(two, 7, block_bytes);
    for (size_t i = 0; i < std::min(a.hashes.size(), b.hashes.size()); ++i) {
      ASSERT_EQ(a.ends[i], b.ends[i]);
      ASSERT_EQ(a.hashes[i] == b.hashes[i], a.ends[i] <= agree) << i;
    }
  }
}

TEST(PromptBlocks, DoubleWithTheirOffsetAndStopAtTheBound) {
  const PromptBlocks blocks = BlocksOf(std::string(3 << 20, 'x'));
  for (size_t i = 1; i < blocks.ends.size(); ++i) {
    const uint32_t size = blocks.ends[i] - blocks.ends[i - 1];
    const uint32_t offset = blocks.ends[i - 1];
    EXPECT_EQ(size % 64, 0u);
    EXPECT_TRUE(offset < 2048 ? size == 64 : (size * 16 <= offset && offset < size * 32)) << offset;
  }
  EXPECT_EQ(blocks.ends.back(), kMaxHashedPromptBytes);
  EXPECT_LT(blocks.ends.size(), 200u);
  EXPECT_TRUE(BlocksOf(std::string(63, 'x')).hashes.empty());
}

// What another implementation has to arrive at.
TEST(PromptBlocks, HaveTheDocumentedValues) {
  const std::string body = R"({"model":"m","tools":[],"prompt":")" + std::string(150, 'a') + "\"}";
  const BodyFields fields = ScanBody(body);
  const PromptBlocks blocks = BlocksOf(fields.prompt, PromptSeed(fields));
  ASSERT_EQ(blocks.hashes.size(), 2u);
  EXPECT_EQ(blocks.hashes[0], 3019531192490990896u);
  EXPECT_EQ(blocks.hashes[1], 15496252950985973321u);
}

TEST(PromptSeed, KeepsApartWhatSharesNoCacheWhateverTheOrderOfFields) {
  const auto seed_of = [](std::string_view body) { return PromptSeed(ScanBody(body)); };
  const uint64_t plain = seed_of(R"({"model":"m","prompt":"x"})");
  EXPECT_EQ(seed_of(R"({"prompt":"y","temperature":0,"model":"m"})"), plain);
  for (const char* other :
       {R"({"model":"n","prompt":"x"})", R"({"prompt":"x"})",
        R"({"model":"m","tools":[{}],"prompt":"x"})", R"({"model":"m","system":"s","prompt":"x"})",
        R"({"model":"m","lora_path":"s","prompt":"x"})",
        R"({"model":"m","cache_salt":"s","prompt":"x"})"}) {
    EXPECT_NE(seed_of(other), plain) << other;
  }
  EXPECT_NE(seed_of(R"({"lora_path":"s"})"), seed_of(R"({"cache_salt":"s"})"));
  EXPECT_EQ(seed_of(R"({"tools":[1],"system":"a"})"), seed_of(R"({"system":"a","tools":[1]})"));
}

}  // namespace
}  // namespace hayate::text
