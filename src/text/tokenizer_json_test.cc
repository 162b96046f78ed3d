#include "text/tokenizer_json.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "text/tokenizer.h"
#include "text/tokenizer_patterns.h"

namespace hayate::text {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A tokenizer.json with one section replaced.
std::string Json(std::string_view section = "", std::string_view value = "") {
  std::string out = "{";
  const auto add = [&](std::string_view name, std::string_view plain) {
    if (out.size() > 1) out += ",";
    out += fmt::format("\"{}\":{}", name, name == section ? value : plain);
  };
  add("added_tokens", R"([{"id":4,"content":"<s>","special":true,"normalized":false}])");
  add("normalizer", "null");
  add("pre_tokenizer", R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":true})");
  add("post_processor", "null");
  add("decoder", R"({"type":"ByteLevel"})");
  add("model", R"({"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3},"merges":["a b"]})");
  return out + "}";
}

std::string Failure(std::string_view section, std::string_view value) {
  const Result<TokenizerSpec> spec = ParseTokenizerJson({Json(section, value), ""});
  return spec.ok() ? "none" : spec.status().message();
}

TEST(TokenizerJson, ReadsAByteLevelTokenizer) {
  const TokenizerSpec spec = *ParseTokenizerJson({Json(), ""});
  EXPECT_TRUE(spec.bpe.byte_level);
  EXPECT_THAT(spec.bpe.tokens, ElementsAre("a", "b", "ab", "Ġ"));
  ASSERT_EQ(spec.pre_tokenizer.size(), 1u);
  EXPECT_EQ(std::get<SplitText>(spec.pre_tokenizer[0]).pattern, kGpt2Pattern);
  const auto tokenizer = *Tokenizer::Create(spec);
  EXPECT_THAT(*tokenizer->Encode("ab <s>a"), ElementsAre(2, 3, 4, 0));
}

TEST(TokenizerJson, ReadsMergesAsPairs) {
  const TokenizerSpec spec = *ParseTokenizerJson(
      {Json("model", R"({"vocab":{"a":0,"b c":1,"ab c":2},"merges":[["a","b c"]]})"), ""});
  ASSERT_EQ(spec.bpe.merges.size(), 1u);
  EXPECT_EQ(spec.bpe.merges[0].result, 2);
}

TEST(TokenizerJson, TheConfigFileNamesBosAndEosAndOverridesTheTemplate) {
  const std::string json = Json("post_processor", R"({"type":"TemplateProcessing",
      "single":[{"SpecialToken":{"id":"<s>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}],
      "special_tokens":{"<s>":{"id":"<s>","ids":[4],"tokens":["<s>"]}}})");
  EXPECT_THAT(ParseTokenizerJson({json, ""})->prefix_ids, ElementsAre(4));
  const TokenizerSpec spec = *ParseTokenizerJson(
      {json,
       R"({"bos_token":{"content":"<s>"},"eos_token":"ab","add_bos_token":false,"add_eos_token":true})"});
  EXPECT_EQ(spec.bos_id, 4);
  EXPECT_EQ(spec.eos_id, 2);
  EXPECT_THAT(spec.prefix_ids, IsEmpty());
  EXPECT_THAT(spec.suffix_ids, ElementsAre(2));
  EXPECT_THAT(ParseTokenizerJson({json, R"({"bos_token":"<x>"})"}).status().message(),
              HasSubstr("tokenizer_config.json: bos_token: '<x>' is not in the vocabulary"));
}

TEST(TokenizerJson, EveryErrorNamesItsPlace) {
  EXPECT_THAT(ParseTokenizerJson({"{", ""}).status().message(),
              HasSubstr("tokenizer.json: not JSON"));
  EXPECT_THAT(ParseTokenizerJson({"[]", ""}).status().message(), HasSubstr("not a JSON object"));
  EXPECT_THAT(Failure("model", "null"), HasSubstr("'model' is missing"));
  EXPECT_THAT(Failure("model", R"({"type":"Unigram"})"), HasSubstr("model: model type 'Unigram'"));
  EXPECT_THAT(Failure("model", R"({"vocab":{"a":-1},"merges":[]})"),
              HasSubstr("model.vocab: token 'a'"));
  EXPECT_THAT(Failure("model", R"({"vocab":{"a":9999999999},"merges":[]})"),
              HasSubstr("token 'a'"));
  EXPECT_THAT(Failure("model", R"({"vocab":{"a":0},"merges":["a a"]})"),
              HasSubstr("model.merges[0]: 'a' + 'a'"));
  EXPECT_THAT(Failure("model", R"({"vocab":{"a":0},"merges":[7]})"), HasSubstr("model.merges[0]"));
  EXPECT_THAT(Failure("model", R"({"vocab":{"a":0},"merges":[],"byte_fallback":3})"),
              HasSubstr("model.byte_fallback: not true or false"));
  EXPECT_THAT(
      Failure("normalizer", R"({"type":"Sequence","normalizers":[{"type":"NFC"},{"type":"Nmt"}]})"),
      HasSubstr("normalizer.normalizers[1]: normalizer 'Nmt' is not known"));
  EXPECT_THAT(Failure("pre_tokenizer", R"({"type":"BertPreTokenizer"})"),
              HasSubstr("pre-tokenizer 'BertPreTokenizer' is not known"));
  EXPECT_THAT(
      Failure("pre_tokenizer", R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Odd"})"),
      HasSubstr("pre_tokenizer: behavior 'Odd'"));
  EXPECT_THAT(Failure("decoder", R"({"type":"WordPiece"})"), HasSubstr("decoder 'WordPiece'"));
  EXPECT_THAT(Failure("decoder", R"({"type":"Strip","content":" ","start":1,"stop":0})"),
              HasSubstr("fused text"));
  EXPECT_THAT(Failure("post_processor", R"({"type":"BertProcessing"})"),
              HasSubstr("'BertProcessing'"));
  EXPECT_THAT(Failure("added_tokens", R"([{"content":"x"}])"),
              HasSubstr("added_tokens[0]: 'id' is missing"));
  EXPECT_THAT(Failure("added_tokens", R"([{"content":"x","id":-4}])"),
              HasSubstr("added_tokens[0].id"));
}

}  // namespace
}  // namespace hayate::text
