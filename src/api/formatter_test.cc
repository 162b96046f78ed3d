// The three dialects on the wire, read back with simdjson.

#include "api/formatter.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include "api/error_table.h"
#include "api/live_requests.h"
#include "api/testing/byte_model.h"
#include "base/error.h"
#include "http/sse.h"

namespace hayate::api {
namespace {

class FormatterTest : public ::testing::Test {
 protected:
  FormatterTest() {
    spec_.prompts.emplace_back(std::string("<|im_end|>p"));
    choice_.emplace(spec_, model_, Choice::Prompt{.tokens = 2});
  }
  AnswerHead Head() { return {.id = "id-1", .created = 7, .spec = &spec_, .model = &model_}; }
  ChoiceView View() { return {.index = 0, .choice = &*choice_, .prompt = &prompt_}; }
  simdjson::dom::element Json(const std::string& text) { return parser_.parse(text).value(); }

  // The data of each event in `out`.
  static std::vector<std::string> Events(const std::string& out) {
    http::SseParser parser(1 << 20);
    parser.Feed(out);
    std::vector<std::string> data;
    http::SseEvent event;
    while (parser.Next(event) == http::SseParser::Outcome::kEvent) data.emplace_back(event.data);
    return data;
  }
  static ChoiceDelta Token(TokenId token, std::string text) {
    ChoiceDelta delta;
    delta.text = std::move(text);
    delta.tokens = {token};
    delta.logprobs.push_back({.token = token, .logprob = -0.5f, .top = {{token, -0.5f}}});
    return delta;
  }
  static ChoiceDelta End() {
    ChoiceDelta delta;
    delta.end = ChoiceEnd{.reason = FinishReason::kStop, .matched_stop = TokenId{258}};
    return delta;
  }

  ServedModel model_ = testing::ByteModel();
  GenerationSpec spec_;
  std::vector<TokenId> prompt_ = {258, 'p'};
  std::optional<Choice> choice_;
  simdjson::dom::parser parser_;
};

TEST_F(FormatterTest, AChatStreamBeginsWithTheRoleAndEndsWithReasonUsageAndDone) {
  spec_.include_usage = true;
  const auto formatter = MakeChatFormatter(Head());
  std::string out;
  formatter->Open(View(), out);
  formatter->Delta(View(), Token('h', "h"), {}, out);
  formatter->Delta(View(), Token('x', ""), {}, out);
  formatter->Delta(View(), End(), {}, out);
  formatter->Close({.prompt_tokens = 2, .completion_tokens = 3}, out);
  const auto events = Events(out);
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(std::string(Json(events[0]).at_pointer("/choices/0/delta/role").value()), "assistant");
  EXPECT_EQ(std::string(Json(events[1]).at_pointer("/choices/0/delta/content").value()), "h");
  EXPECT_TRUE(Json(events[1]).at_pointer("/choices/0/finish_reason").value().is_null());
  EXPECT_TRUE(Json(events[1]).at_key("usage").value().is_null());
  EXPECT_EQ(std::string(Json(events[3]).at_pointer("/choices/0/finish_reason").value()), "stop");
  EXPECT_EQ(int64_t(Json(events[3]).at_pointer("/choices/0/matched_stop").value()), 258);
  EXPECT_EQ(Json(events[4]).at_key("choices").get_array().value().size(), 0u);
  EXPECT_EQ(int64_t(Json(events[4]).at_pointer("/usage/total_tokens").value()), 5);
  EXPECT_EQ(events[5], "[DONE]");
}

TEST_F(FormatterTest, EchoGivesTheTextAsItWasSentAndOffsetsInCharacters) {
  spec_.echo = true;
  spec_.logprobs.enabled = true;
  const auto formatter = MakeCompletionFormatter(Head());
  std::string out;
  choice_->prompt_logprobs().push_back({.token = 'p', .logprob = -2.0f, .top = {}});
  formatter->Delta(View(), Token('h', "h"), {}, out);
  formatter->Delta(View(), Token('i', "i"), {}, out);
  const auto events = Events(out);
  ASSERT_EQ(events.size(), 2u);
  const auto first = Json(events[0]).at_pointer("/choices/0").value();
  EXPECT_EQ(std::string(first["text"]), "<|im_end|>ph");
  EXPECT_EQ(simdjson::minify(first["logprobs"]["token_logprobs"]), "[null,-2,-0.5]");
  EXPECT_EQ(simdjson::minify(first["logprobs"]["text_offset"]), "[0,10,11]");
  const auto second = Json(events[1]).at_pointer("/choices/0").value();
  EXPECT_EQ(std::string(second["text"]), "i");
  EXPECT_EQ(simdjson::minify(second["logprobs"]["text_offset"]), "[12]");
}

TEST_F(FormatterTest, GenerateStreamsTextThatGrows) {
  const auto formatter = MakeGenerateFormatter(Head());
  std::string out;
  formatter->Delta(View(), Token('h', "h"), {}, out);
  formatter->Delta(View(), Token('i', "i"), {}, out);
  formatter->Delta(View(), End(), {}, out);
  const auto events = Events(out);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(std::string(Json(events[0])["text"]), "h");
  EXPECT_EQ(std::string(Json(events[1])["text"]), "hi");
  EXPECT_TRUE(Json(events[1]).at_pointer("/meta_info/finish_reason").value().is_null());
  EXPECT_EQ(simdjson::minify(Json(events[2])["output_ids"]), "[104,105]");
  EXPECT_EQ(simdjson::minify(Json(events[2]).at_pointer("/meta_info/finish_reason").value()),
            R"({"type":"stop","matched":258})");
}

TEST(ErrorTable, BodiesAreOpenAisEnvelopeWhateverTheMessageHolds) {
  simdjson::dom::parser parser;
  const std::string body = ErrorBody(InvalidField("top_p", "\xff\"\n{}", 1));
  const simdjson::dom::element error = parser.parse(body)["error"].value();
  EXPECT_EQ(std::string(error["param"]), "top_p");
  EXPECT_EQ(std::string(error["type"]), "invalid_request_error");
  const std::string missing =
      ErrorBody(Status(ErrorCode::kNotFound, "no such model").WithParam("model"));
  EXPECT_EQ(std::string(parser.parse(missing)["error"]["code"]), "model_not_found");
  EXPECT_EQ(KindOf(ErrorCode::kResourceExhausted).http_status, 429);
  EXPECT_EQ(KindOf(ErrorCode::kContextTooLong).http_status, 400);
}

TEST(LiveRequests, NamesAreTakenTogetherOrNotAtAll) {
  LiveRequests live;
  EXPECT_FALSE(live.Claim({"a", "b"}));
  EXPECT_EQ(live.Claim({"c", "b", "d"}), "b");
  EXPECT_EQ(live.Claim({"e", "e"}), "e");
  EXPECT_FALSE(live.Claim({"c", "d", "e"}));
  live.Add("a", RequestId{1});
  live.Add("a", RequestId{2});
  EXPECT_EQ(live.Find("a").size(), 2u);
  EXPECT_TRUE(live.Find("aa").empty());
  live.Release({"a", "b"});
  EXPECT_TRUE(live.Find("a").empty());
  EXPECT_FALSE(live.Claim({"a"}));
}

}  // namespace
}  // namespace hayate::api
