#include "weights/metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hayate::weights {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Metadata Parse(std::string_view json) {
  Result<Metadata> metadata = Metadata::FromJson(json);
  CHECK(metadata.ok()) << metadata.status().ToString();
  return std::move(metadata).value();
}

TEST(Metadata, NestedJsonBecomesDottedKeys) {
  const Metadata metadata = Parse(R"({
    "hidden_size": 576, "rms_norm_eps": 1e-05, "tie_word_embeddings": true, "model_type": "llama",
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
    "eos_token_id": [1, 2], "mrope": [0.5, 1], "architectures": ["LlamaForCausalLM"],
    "templates": [{"name": "default"}, 3], "nothing": null, "none": [], "flags": [true, false]})");
  EXPECT_EQ(*metadata.GetInt("hidden_size"), 576);
  EXPECT_EQ(*metadata.GetFloat("hidden_size"), 576.0);
  EXPECT_EQ(*metadata.GetFloat("rms_norm_eps"), 1e-5);
  EXPECT_TRUE(*metadata.GetBool("tie_word_embeddings"));
  EXPECT_EQ(*metadata.GetString("rope_scaling.rope_type"), "llama3");
  EXPECT_EQ(*metadata.GetInt("rope_scaling.factor"), 8);
  EXPECT_THAT(*metadata.GetIntArray("eos_token_id"), ElementsAre(1, 2));
  EXPECT_THAT(*metadata.GetFloatArray("mrope"), ElementsAre(0.5, 1.0));
  EXPECT_THAT(*metadata.GetStringArray("architectures"), ElementsAre("LlamaForCausalLM"));
  EXPECT_EQ(*metadata.GetString("templates.0.name"), "default");
  EXPECT_EQ(*metadata.GetInt("templates.1"), 3);
  EXPECT_FALSE(metadata.Has("nothing"));
  EXPECT_EQ(*metadata.GetInt("nothing", 7), 7);
}

TEST(Metadata, WrongKindsAndMissingKeysNameTheKey) {
  const Metadata metadata =
      Parse(R"({"a": "text", "b": 1.5, "c": [1, 2], "d": 18446744073709551615})");
  EXPECT_EQ(metadata.GetInt("z").status().code(), ErrorCode::kNotFound);
  EXPECT_THAT(metadata.GetInt("z").status().message(), HasSubstr("no key 'z'"));
  EXPECT_THAT(metadata.GetInt("a").status().message(),
              HasSubstr("key 'a' is a string, expected an integer"));
  EXPECT_FALSE(metadata.GetInt("a", 3).ok());
  EXPECT_FALSE(metadata.GetInt("b").ok());
  EXPECT_FALSE(metadata.GetInt("c").ok());
  EXPECT_FALSE(metadata.GetInt("d").ok());
  EXPECT_EQ(*metadata.GetFloat("d"), 0x1p64);
  EXPECT_FALSE(metadata.GetBool("b").ok());
  EXPECT_FALSE(metadata.GetString("b").ok());
  EXPECT_FALSE(metadata.GetStringArray("c").ok());
  EXPECT_FALSE(metadata.GetIntArray("a").ok());
}

TEST(Metadata, AScalarReadsAsAnArrayOfOne) {
  const Metadata metadata = Parse(R"({"id": 2, "f": 0.5, "s": "x"})");
  EXPECT_THAT(*metadata.GetIntArray("id"), ElementsAre(2));
  EXPECT_THAT(*metadata.GetFloatArray("f"), ElementsAre(0.5));
  EXPECT_THAT(*metadata.GetStringArray("s"), ElementsAre("x"));
}

TEST(Metadata, AnEmptyArrayReadsAsAnyArray) {
  const Metadata metadata = Parse(R"({"none": []})");
  EXPECT_TRUE(metadata.GetIntArray("none")->empty());
  EXPECT_TRUE(metadata.GetFloatArray("none")->empty());
  EXPECT_TRUE(metadata.GetStringArray("none")->empty());
  EXPECT_FALSE(metadata.GetInt("none").ok());
}

TEST(Metadata, HostileJsonIsRefused) {
  for (const char* json : {"", "[]", "1", "{", "{\"a\":}", "{\"a\":1}}", "{\"a\":1,\"a\":2}",
                           "{\"a\":{\"b\":1},\"a.b\":2}", "{\"a\":\"\xFF\"}"}) {
    EXPECT_FALSE(Metadata::FromJson(json).ok()) << json;
  }
  const std::string deep = std::string(10'000, '{');
  EXPECT_FALSE(Metadata::FromJson(deep).ok());
}

// A long key over many leaves would be copied into each of them.
TEST(Metadata, ASmallDocumentCannotBecomeALargeMap) {
  std::string leaves = "\"x\":1";
  for (int i = 0; i < 1000; ++i) leaves += ",\"" + std::to_string(i) + "\":1";
  const std::string amplified = "{\"" + std::string(100'000, 'k') + "\":{" + leaves + "}}";
  EXPECT_EQ(Metadata::FromJson(amplified).status().code(), ErrorCode::kPayloadTooLarge);
  std::string mixed = "{\"a\":[\"\"";
  for (int i = 0; i < 1'000'001; ++i) mixed += ",1";
  EXPECT_EQ(Metadata::FromJson(mixed + "]}").status().code(), ErrorCode::kPayloadTooLarge);
}

TEST(Metadata, StringsStayValidWhenTheMapMoves) {
  Metadata metadata = Parse(R"({"short": "ab", "list": ["c", "d"]})");
  const std::string_view before = *metadata.GetString("short");
  const Metadata moved = std::move(metadata);
  EXPECT_EQ(before.data(), moved.GetString("short")->data());
  EXPECT_THAT(*moved.GetStringArray("list"), ElementsAre("c", "d"));
}

TEST(Metadata, SummariesAreShort) {
  EXPECT_EQ(Summarize(MetadataValue(std::string_view("llama")), 40), "\"llama\"");
  EXPECT_EQ(Summarize(MetadataValue(int64_t{2048}), 40), "2048");
  EXPECT_EQ(Summarize(MetadataValue(std::vector<int64_t>{1, 2}), 40), "[2 items] 1, 2");
  const std::string long_list =
      Summarize(MetadataValue(std::vector<std::string_view>(1000, "token")), 40);
  EXPECT_LE(long_list.size(), 46u);
  EXPECT_THAT(long_list, testing::StartsWith("[1000 items] \"token\""));
  EXPECT_EQ(Summarize(MetadataValue(std::string_view("疾風疾風")), 4), "\"疾\"…");
}

}  // namespace
}  // namespace hayate::weights
