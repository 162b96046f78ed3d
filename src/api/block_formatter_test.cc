// The event streams of Responses and Messages: order, numbers, and that they add up to the whole
// answer.

#include "api/block_formatter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/response_store.h"
#include "api/testing/byte_model.h"
#include "base/error.h"
#include "http/sse.h"

namespace hayate::api {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using text::AnswerPart;

struct Event {
  std::string type;
  json data;
};

std::vector<Event> Read(const std::string& out) {
  http::SseParser parser(1 << 20);
  parser.Feed(out);
  std::vector<Event> events;
  http::SseEvent event;
  while (parser.Next(event) == http::SseParser::Outcome::kEvent) {
    events.push_back({std::string(event.event), json::parse(event.data)});
  }
  return events;
}

std::vector<std::string> Types(const std::vector<Event>& events) {
  std::vector<std::string> types;
  for (const Event& event : events) types.push_back(event.type);
  return types;
}

class BlockFormatterTest : public ::testing::Test {
 protected:
  BlockFormatterTest() {
    model_.report_cached_tokens = true;
    spec_.dialect = Dialect::kResponses;
    spec_.prompts.emplace_back(std::string("p"));
    spec_.format.reasoning = text::FindReasoningDialect("qwen3");
    spec_.format.tools = text::FindToolDialect("hermes");
    spec_.format.signatures = {{"add", {}}};
    spec_.response = ResponseFields{
        .echo = R"("tools":[])",
        .input = std::make_shared<ResponseItems>(ResponseItems{R"({"type":"message"})"})};
    choice_.emplace(spec_, model_,
                    Choice::Prompt{.tokens = 5, .thinking = text::ThinkingPlace::kInside});
  }
  AnswerHead Head() {
    return {.id = "id-1", .created = 7, .call_seed = 9, .spec = &spec_, .model = &model_};
  }
  ChoiceView View() { return {.index = 0, .choice = &*choice_, .prompt = &prompt_}; }
  static ChoiceDelta Parts(std::vector<text::AnswerEvent> parts) {
    ChoiceDelta delta;
    delta.parts = std::move(parts);
    return delta;
  }
  static ChoiceDelta End(FinishReason reason, bool called_tools = false) {
    ChoiceDelta delta;
    delta.end = ChoiceEnd{.reason = reason, .called_tools = called_tools};
    return delta;
  }
  // Thinking, a text in two pieces, and a call.
  static std::vector<ChoiceDelta> Answer() {
    return {Parts({{AnswerPart::kReasoning, "hm"}}),
            Parts({{AnswerPart::kContent, "I "}}),
            Parts({{AnswerPart::kContent, "add"}, {AnswerPart::kCallName, "add", 0}}),
            Parts({{AnswerPart::kCallArguments, R"({"a":)", 0}}),
            Parts({{AnswerPart::kCallArguments, "1}", 0}}),
            End(FinishReason::kStop, true)};
  }
  std::vector<Event> Stream(Formatter& formatter, const std::vector<ChoiceDelta>& deltas) {
    std::string out;
    formatter.Open(View(), out);
    for (const ChoiceDelta& delta : deltas) formatter.Delta(View(), delta, {}, out);
    formatter.Close({.prompt_tokens = 5, .completion_tokens = 8, .cached_tokens = 2}, out);
    return Read(out);
  }
  json Whole(Formatter& formatter, const std::vector<ChoiceDelta>& deltas) {
    for (const ChoiceDelta& delta : deltas) formatter.Gather(View(), delta);
    return json::parse(formatter.Render(
        {View()}, {.prompt_tokens = 5, .completion_tokens = 8, .cached_tokens = 2}));
  }

  ServedModel model_ = testing::ByteModel();
  GenerationSpec spec_;
  std::vector<TokenId> prompt_ = {'p'};
  std::optional<Choice> choice_;
};

TEST_F(BlockFormatterTest, AResponseStreamsItsItemsInOrder) {
  const auto formatter = MakeResponsesFormatter(Head(), nullptr);
  const auto events = Stream(*formatter, Answer());
  EXPECT_THAT(
      Types(events),
      ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                  "response.content_part.added", "response.reasoning_text.delta",
                  "response.reasoning_text.done", "response.content_part.done",
                  "response.output_item.done", "response.output_item.added",
                  "response.content_part.added", "response.output_text.delta",
                  "response.output_text.delta", "response.output_text.done",
                  "response.content_part.done", "response.output_item.done",
                  "response.output_item.added", "response.function_call_arguments.delta",
                  "response.function_call_arguments.delta", "response.function_call_arguments.done",
                  "response.output_item.done", "response.completed"));
  std::map<int64_t, std::string> item_ids;
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].data["sequence_number"], i);
    EXPECT_EQ(events[i].data["type"], events[i].type);
    if (!events[i].data.contains("item_id")) continue;
    const auto [at, fresh] = item_ids.emplace(events[i].data["output_index"].get<int64_t>(),
                                              events[i].data["item_id"].get<std::string>());
    EXPECT_EQ(at->second, events[i].data["item_id"]);
  }
  EXPECT_EQ(item_ids.size(), 3u);
}

TEST_F(BlockFormatterTest, AStreamedResponseEndsAsTheWholeOne) {
  auto streamed =
      Stream(*MakeResponsesFormatter(Head(), nullptr), Answer()).back().data["response"];
  auto whole = Whole(*MakeResponsesFormatter(Head(), nullptr), Answer());
  streamed.erase("completed_at"), whole.erase("completed_at");
  EXPECT_EQ(streamed, whole);
  EXPECT_EQ(whole["status"], "completed");
  EXPECT_EQ(whole["output"].size(), 3u);
  EXPECT_EQ(whole["output"][0]["content"][0]["text"], "hm");
  EXPECT_EQ(whole["output"][1]["content"][0]["text"], "I add");
  EXPECT_EQ(whole["output"][2]["arguments"], R"({"a":1})");
  EXPECT_EQ(whole["usage"]["input_tokens_details"]["cached_tokens"], 2);
}

TEST_F(BlockFormatterTest, ACutResponseIsIncompleteAndSoIsItsLastItem) {
  const auto whole = Whole(*MakeResponsesFormatter(Head(), nullptr),
                           {Parts({{AnswerPart::kReasoning, "hm"}}),
                            Parts({{AnswerPart::kContent, "a"}}), End(FinishReason::kLength)});
  EXPECT_EQ(whole["status"], "incomplete");
  EXPECT_EQ(whole["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(whole["output"][0]["status"], "completed");
  EXPECT_EQ(whole["output"][1]["status"], "incomplete");
}

TEST_F(BlockFormatterTest, AStoredResponseCarriesItsConversation) {
  ResponseStore store({});
  Whole(*MakeResponsesFormatter(Head(), &store), Answer());
  EXPECT_EQ(store.Conversation("id-1", 0)->size(), 4u);
  spec_.response->store = false;
  ResponseStore none({});
  Whole(*MakeResponsesFormatter(Head(), &none), Answer());
  EXPECT_EQ(none.num_responses(), 0u);
}

TEST_F(BlockFormatterTest, AResponseThatFailsSaysSoLast) {
  const auto formatter = MakeResponsesFormatter(Head(), nullptr);
  std::string out;
  formatter->Open(View(), out);
  formatter->Fail(Status(ErrorCode::kInternal, "broken"), out);
  const auto events = Read(out);
  EXPECT_EQ(events.back().type, "response.failed");
  EXPECT_EQ(events.back().data["response"]["error"]["code"], "server_error");
  EXPECT_EQ(events.back().data["response"]["status"], "failed");
}

TEST_F(BlockFormatterTest, AMessageStreamsItsBlocksInOrder) {
  const auto events = Stream(*MakeMessagesFormatter(Head()), Answer());
  EXPECT_THAT(Types(events),
              ElementsAre("message_start", "ping", "content_block_start", "content_block_delta",
                          "content_block_delta", "content_block_stop", "content_block_start",
                          "content_block_delta", "content_block_delta", "content_block_stop",
                          "content_block_start", "content_block_delta", "content_block_delta",
                          "content_block_stop", "message_delta", "message_stop"));
  EXPECT_EQ(events[0].data["message"]["usage"]["input_tokens"], 5);
  EXPECT_EQ(events[4].data["delta"]["type"], "signature_delta");
  EXPECT_EQ(events[10].data["content_block"]["input"], json::object());
  std::string arguments;
  for (const Event& event : events) {
    if (event.data.contains("delta") && event.data["delta"].contains("partial_json")) {
      arguments += event.data["delta"]["partial_json"].get<std::string>();
    }
  }
  EXPECT_EQ(json::parse(arguments), json({{"a", 1}}));
  EXPECT_EQ(events[14].data["delta"]["stop_reason"], "tool_use");
  EXPECT_EQ(events[14].data["usage"]["cache_read_input_tokens"], 2);
  EXPECT_EQ(events[14].data["usage"]["input_tokens"], 3);
}

TEST_F(BlockFormatterTest, AMessageTellsHowItEnded) {
  const auto reason = [&](ChoiceDelta end) {
    return Whole(*MakeMessagesFormatter(Head()), {std::move(end)})["stop_reason"];
  };
  EXPECT_EQ(reason(End(FinishReason::kStop)), "end_turn");
  EXPECT_EQ(reason(End(FinishReason::kLength, true)), "max_tokens");
  ChoiceDelta stopped = End(FinishReason::kStop);
  stopped.end->matched_stop = std::string("###");
  const auto whole = Whole(*MakeMessagesFormatter(Head()), {stopped});
  EXPECT_EQ(whole["stop_reason"], "stop_sequence");
  EXPECT_EQ(whole["stop_sequence"], "###");
}

TEST_F(BlockFormatterTest, ACutCallIsAnEmptyInputAndOmittedThinkingIsSilent) {
  spec_.show_reasoning = false;
  const auto whole =
      Whole(*MakeMessagesFormatter(Head()),
            {Parts({{AnswerPart::kReasoning, "secret"}, {AnswerPart::kCallName, "add", 0}}),
             Parts({{AnswerPart::kCallArguments, R"({"a":)", 0}}), End(FinishReason::kLength)});
  EXPECT_EQ(whole["content"][0]["thinking"], "");
  EXPECT_EQ(whole["content"][1]["input"], json::object());
  const auto events =
      Stream(*MakeMessagesFormatter(Head()),
             {Parts({{AnswerPart::kReasoning, "secret"}}), End(FinishReason::kStop)});
  for (const Event& event : events) EXPECT_EQ(event.data.dump().find("secret"), std::string::npos);
}

TEST_F(BlockFormatterTest, AMessageThatFailsSaysSoInAnthropicsShape) {
  const auto formatter = MakeMessagesFormatter(Head());
  std::string out;
  formatter->Fail(Status(ErrorCode::kResourceExhausted, "full"), out);
  const auto events = Read(out);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].type, "error");
  EXPECT_EQ(events[0].data["error"]["type"], "rate_limit_error");
}

}  // namespace
}  // namespace hayate::api
