#include "bench/stream_dialect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <simdjson.h>

namespace hayate::bench {
namespace {

using ::testing::HasSubstr;

TEST(StreamDialect, KnowsEveryNameItOffersAndNoOther) {
  for (const std::string& name : BackendNames()) EXPECT_TRUE(ParseBackend(name).ok()) << name;
  const auto unknown = ParseBackend("tgi");
  EXPECT_EQ(unknown.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(unknown.status().message(), HasSubstr("sglang-oai-chat"));
}

TEST(StreamDialect, WritesValidBodies) {
  const PlannedRequest ids{.prompt_ids = {3, 1, 4}, .output_tokens = 9};
  const PlannedRequest text{.prompt_text = "say \"hi\"", .output_tokens = 9};
  simdjson::dom::parser parser;
  for (const char* extra : {"", "{}", " { } ", R"({"top_k": 5, "x": {"y": "}"}})"}) {
    DialectOptions options{.base_path = "/a", .model = "m", .api_key = "k", .extra_body = extra};
    const auto completion = MakeStreamRequest(options, ids);
    EXPECT_EQ(completion.target, "/a/v1/completions");
    EXPECT_EQ(completion.headers.back().second, "Bearer k");
    auto root = parser.parse(completion.body);
    ASSERT_EQ(root.error(), simdjson::SUCCESS) << completion.body;
    EXPECT_EQ(root["prompt"].at(2).get_int64().value(), 4);
    EXPECT_EQ(root["max_tokens"].get_int64().value(), 9);
    EXPECT_TRUE(root["stream_options"]["include_usage"].get_bool().value());
    EXPECT_TRUE(root["ignore_eos"].get_bool().value());

    options.dialect = StreamDialect::kChat;
    const auto chat = MakeStreamRequest(options, text);
    root = parser.parse(chat.body);
    ASSERT_EQ(root.error(), simdjson::SUCCESS) << chat.body;
    EXPECT_EQ(root["messages"].at(0)["content"].get_string().value(), "say \"hi\"");

    options.dialect = StreamDialect::kGenerate;
    const auto generate = MakeStreamRequest(options, ids);
    root = parser.parse(generate.body);
    ASSERT_EQ(root.error(), simdjson::SUCCESS) << generate.body;
    EXPECT_EQ(root["sampling_params"]["max_new_tokens"].get_int64().value(), 9);
    EXPECT_EQ(root["input_ids"].at(0).get_int64().value(), 3);
  }
  EXPECT_TRUE(CheckExtraBody("{}").ok());
  for (const char* wrong : {"", "[1]", "{", "5"}) EXPECT_FALSE(CheckExtraBody(wrong).ok()) << wrong;
}

TEST(StreamDialect, ReadsTextCountsAndEnds) {
  StreamEventReader reader(StreamDialect::kCompletions);
  auto event = *reader.Read(R"({"choices":[{"text":"a","finish_reason":null}],"usage":null})");
  EXPECT_TRUE(event.has_text);
  EXPECT_FALSE(event.finished);
  EXPECT_FALSE(event.completion_tokens);
  event = *reader.Read(R"({"choices":[{"text":"","finish_reason":"length"}]})");
  EXPECT_FALSE(event.has_text);
  EXPECT_TRUE(event.finished);
  event = *reader.Read(R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,
      "prompt_tokens_details":{"cached_tokens":2}}})");
  EXPECT_EQ(event.prompt_tokens, 7);
  EXPECT_EQ(event.completion_tokens, 3);
  EXPECT_EQ(event.cached_tokens, 2);
  EXPECT_TRUE(reader.Read("[DONE]")->finished);

  StreamEventReader chat(StreamDialect::kChat);
  EXPECT_FALSE(chat.Read(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})")->has_text);
  EXPECT_TRUE(chat.Read(R"({"choices":[{"delta":{"content":"x"}}]})")->has_text);
  EXPECT_TRUE(chat.Read(R"({"choices":[{"delta":{"reasoning_content":"x"}}]})")->has_text);

  StreamEventReader generate(StreamDialect::kGenerate);
  event = *generate.Read(R"({"text":"ab","meta_info":{"prompt_tokens":7,"completion_tokens":2,
      "finish_reason":{"type":"length"}}})");
  EXPECT_EQ(event.completion_tokens, 2);
  EXPECT_TRUE(event.finished);
}

TEST(StreamDialect, SurvivesWhatIsNotOfTheDialect) {
  StreamEventReader reader(StreamDialect::kCompletions);
  EXPECT_EQ(reader.Read("").status().code(), ErrorCode::kDataLoss);
  EXPECT_EQ(reader.Read("[1]").status().code(), ErrorCode::kDataLoss);
  EXPECT_EQ(reader.Read(R"({"error":{"message":"full"}})")->error, "full");
  EXPECT_EQ(reader.Read(R"({"error":"full"})")->error, "full");
  EXPECT_FALSE(reader.Read(R"({"error":{}})")->error.empty());
  const auto odd =
      reader.Read(R"({"choices":{"a":1},"usage":{"prompt_tokens":-1,"completion_tokens":1e9}})");
  ASSERT_TRUE(odd.ok());
  EXPECT_FALSE(odd->has_text || odd->prompt_tokens || odd->completion_tokens);
}

}  // namespace
}  // namespace hayate::bench
