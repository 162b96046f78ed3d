// Fields that shape an answer: grammars, tools, thinking; and the grammar made of them all.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/answer_grammar.h"
#include "api/choice.h"
#include "api/field_reader.h"
#include "api/formatter.h"
#include "api/openai_parse.h"
#include "api/prepare.h"
#include "api/testing/byte_model.h"
#include "grammar/matcher.h"
#include "http/sse.h"

namespace hayate::api {
namespace {

using ::testing::HasSubstr;

constexpr const char* kTools =
    R"("tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object",
    "properties":{"a":{"type":"integer"}},"required":["a"]}}},
    {"type":"function","function":{"name":"say"}}])";

class AnswerFormatTest : public ::testing::Test {
 protected:
  AnswerFormatTest() {
    model_.tools = text::FindToolDialect("hermes");
    vocabulary_ = grammar::Vocabulary::Create(*model_.tokenizer, {.vocab_size = model_.vocab_size,
                                                                  .stop_ids = model_.eos_ids})
                      .value();
  }

  Result<GenerationSpec> Chat(const std::string& fields) {
    simdjson::dom::parser parser;
    ASSIGN_OR_RETURN(
        auto body,
        ParseBody(parser, R"({"messages":[{"role":"user","content":"x"}],)" + fields + "}"));
    return ParseChatRequest(body, model_, unknown_);
  }
  std::string Param(const std::string& fields) {
    const auto spec = Chat(fields);
    EXPECT_FALSE(spec.ok()) << fields;
    return spec.status().param();
  }
  bool Allows(const GenerationSpec& spec, const std::string& text,
              text::ThinkingPlace place = text::ThinkingPlace::kNone) {
    const auto source = AnswerGrammar(spec, place);
    EXPECT_TRUE(source) << "no grammar";
    if (!source) return false;
    const auto grammar = grammar::CompiledGrammar::Compile(vocabulary_, *source);
    EXPECT_TRUE(grammar.ok()) << grammar.status().ToString() << source->text;
    if (!grammar.ok()) return false;
    grammar::Matcher matcher(*grammar);
    return matcher.AcceptText(text) && matcher.complete();
  }

  ServedModel model_ = testing::ByteModel();
  std::shared_ptr<const grammar::Vocabulary> vocabulary_;
  std::vector<std::string> unknown_;
};

TEST_F(AnswerFormatTest, OneFieldAsksForAGrammar) {
  EXPECT_FALSE(Chat(R"("response_format":{"type":"text"})")->grammar);
  EXPECT_EQ(Chat(R"("response_format":{"type":"json_object"})")->grammar->kind,
            grammar::GrammarKind::kJsonObject);
  const auto schema =
      Chat(R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"null"}}})");
  EXPECT_EQ(schema->grammar->text, R"({"type":"null"})");
  EXPECT_EQ(schema->grammar->field, "response_format.json_schema.schema");
  EXPECT_EQ(Chat(R"("regex":"a+")")->grammar->field, "regex");
  EXPECT_EQ(Param(R"("regex":"a","ebnf":"root ::= \"a\"")"), "ebnf");
  EXPECT_EQ(Param(R"("response_format":{"type":"yaml"})"), "response_format");
  EXPECT_EQ(Param(R"("response_format":{"type":"json_schema"})"), "response_format");
  EXPECT_EQ(Param(R"("regex":7)"), "regex");
}

TEST_F(AnswerFormatTest, ToolChoicesAreChecked) {
  EXPECT_EQ(Chat(kTools)->tools.choice, ToolChoice::kAuto);
  EXPECT_EQ(Chat(R"("tool_choice":"none")")->tools.choice, ToolChoice::kNone);
  EXPECT_EQ(Param(R"("tool_choice":"required")"), "tool_choice");
  EXPECT_EQ(Param(std::string(kTools) + R"(,"tool_choice":{"function":{"name":"nope"}})"),
            "tool_choice");
  EXPECT_EQ(Param(R"("tools":[{"type":"web_search"}])"), "tools[0].type");
  EXPECT_EQ(Param(R"("tools":[{"function":{"name":""}}])"), "tools[0].function.name");
}

TEST_F(AnswerFormatTest, DemandedCallsAreAllTheAnswerHolds) {
  const auto any = Chat(std::string(kTools) + R"(,"tool_choice":"required")");
  const std::string add =
      "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\":1}}\n</tool_call>";
  const std::string say =
      "<tool_call>\n{\"name\": \"say\", \"arguments\": {\"b\":\"c\"}}\n</tool_call>";
  EXPECT_TRUE(Allows(*any, add));
  EXPECT_TRUE(Allows(*any, say + "\n" + add));
  EXPECT_FALSE(Allows(*any, "first " + add));
  EXPECT_FALSE(Allows(*any, ""));
  const auto one =
      Chat(std::string(kTools) + R"(,"tool_choice":"required","parallel_tool_calls":false)");
  EXPECT_TRUE(Allows(*one, say));
  EXPECT_FALSE(Allows(*one, say + "\n" + add));
  const auto named =
      Chat(std::string(kTools) + R"(,"tool_choice":{"type":"function","function":{"name":"add"}})");
  EXPECT_TRUE(Allows(*named, add));
  EXPECT_FALSE(Allows(*named, say));
}

TEST_F(AnswerFormatTest, AFormatLeavesRoomForCalls) {
  const auto spec = Chat(std::string(kTools) + R"(,"response_format":{"type":"json_object"})");
  EXPECT_TRUE(Allows(*spec, R"({"x":1})"));
  EXPECT_TRUE(Allows(*spec, "<tool_call>\n{\"name\": \"say\", \"arguments\": {}}\n</tool_call>"));
  EXPECT_FALSE(Allows(*spec, "text"));
}

TEST_F(AnswerFormatTest, FreeAnswersHaveNoGrammar) {
  EXPECT_FALSE(AnswerGrammar(*Chat(kTools), text::ThinkingPlace::kNone));
  EXPECT_FALSE(AnswerGrammar(*Chat(R"("temperature":0)"), text::ThinkingPlace::kNone));
}

TEST_F(AnswerFormatTest, StrictToolsBindACallThatBegins) {
  const auto spec = Chat(
      R"("tools":[{"type":"function","function":{"name":"add","strict":true,"parameters":
      {"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}}])");
  EXPECT_TRUE(Allows(*spec, "no call at all"));
  EXPECT_TRUE(
      Allows(*spec, "so <tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\":1}}\n</tool_call>"));
  EXPECT_FALSE(
      Allows(*spec, "so <tool_call>\n{\"name\": \"add\", \"arguments\": {}}\n</tool_call>"));
}

TEST_F(AnswerFormatTest, TheGrammarBeginsAfterTheThinking) {
  model_.reasoning = text::FindReasoningDialect("qwen3");
  const auto spec = Chat(R"("regex":"[0-9]+")");
  EXPECT_TRUE(Allows(*spec, "let me see</think>\n\n42", text::ThinkingPlace::kInside));
  EXPECT_FALSE(Allows(*spec, "let me see</think>no", text::ThinkingPlace::kInside));
  EXPECT_TRUE(Allows(*spec, "42", text::ThinkingPlace::kMayBegin));
  EXPECT_TRUE(Allows(*spec, "<think>hm</think>42", text::ThinkingPlace::kMayBegin));
  EXPECT_TRUE(Allows(*spec, "42", text::ThinkingPlace::kNone));
}

TEST_F(AnswerFormatTest, AThinkingBudgetForcesTheEndMarker) {
  model_.reasoning = text::FindReasoningDialect("qwen3");
  const auto spec = Chat(R"("thinking_budget":3)");
  const auto source = AnswerGrammar(*spec, text::ThinkingPlace::kInside);
  ASSERT_TRUE(source);
  grammar::Matcher matcher(grammar::CompiledGrammar::Compile(vocabulary_, *source).value());
  std::vector<uint32_t> mask(vocabulary_->mask_words());
  const auto allowed = [&](char c) {
    return (mask[static_cast<size_t>(c) / 32] >> (c % 32) & 1) != 0;
  };
  for (const char c : std::string("abc")) {
    matcher.FillMask(mask);
    EXPECT_TRUE(allowed(c));
    EXPECT_TRUE(matcher.Accept(c));
  }
  for (const char c : std::string("</think>")) {
    matcher.FillMask(mask);
    EXPECT_TRUE(allowed(c));
    EXPECT_FALSE(allowed('a'));
    EXPECT_TRUE(matcher.Accept(c));
  }
  EXPECT_EQ(Param(R"("thinking_budget":-1)"), "thinking_budget");
  EXPECT_EQ(Param(R"("reasoning_effort":"huge")"), "reasoning_effort");
}

TEST_F(AnswerFormatTest, AStreamOfCallsOpensEachOnceAndEndsWithToolCalls) {
  const auto spec = Chat(std::string(kTools) + R"(,"tool_choice":"auto")");
  Choice choice(*spec, model_, Choice::Prompt{.tokens = 1});
  AnswerHead head{.id = "id", .call_seed = 0xABC, .spec = &*spec, .model = &model_};
  const auto formatter = MakeChatFormatter(head);
  const std::vector<TokenId> prompt = {1};
  const ChoiceView view{.index = 0, .choice = &choice, .prompt = &prompt};
  std::string out;
  const std::string text = "Hi <tool_call>{\"name\":\"add\",\"arguments\":{\"a\":1}}</tool_call>";
  for (size_t i = 0; i <= text.size(); ++i) {
    TokenEvent event;
    event.tokens = {i < text.size() ? static_cast<TokenId>(static_cast<unsigned char>(text[i]))
                                    : testing::kEnd};
    if (i == text.size()) {
      event.finish = FinishReason::kStop;
      event.matched_stop = testing::kEnd;
    }
    formatter->Delta(view, choice.Push(event), {}, out);
  }
  std::string content, arguments, finish;
  int opened = 0;
  http::SseParser sse(1 << 20);
  sse.Feed(out);
  http::SseEvent event;
  simdjson::dom::parser parser;
  while (sse.Next(event) == http::SseParser::Outcome::kEvent) {
    const simdjson::dom::element chunk =
        parser.parse(std::string(event.data))["choices"].at(0).value();
    std::string_view piece;
    if (chunk["delta"]["content"].get(piece) == simdjson::SUCCESS) content += piece;
    simdjson::dom::element call;
    if (chunk.at_pointer("/delta/tool_calls/0").get(call) == simdjson::SUCCESS) {
      EXPECT_EQ(call["index"].get_int64().value(), 0);
      arguments += call["function"]["arguments"].get_string().value();
      if (call["id"].get(piece) == simdjson::SUCCESS) {
        ++opened;
        EXPECT_EQ(piece, "call_0000000000000abc00000000");
        EXPECT_EQ(call["function"]["name"].get_string().value(), "add");
      }
    }
    if (chunk["finish_reason"].get(piece) == simdjson::SUCCESS) finish = piece;
  }
  EXPECT_EQ(content, "Hi");
  EXPECT_EQ(arguments, R"({"a":1})");
  EXPECT_EQ(opened, 1);
  EXPECT_EQ(finish, "tool_calls");
}

TEST_F(AnswerFormatTest, OldCallsReachTheTemplateAsItWantsThem) {
  const auto render = [&](const char* source, const char* arguments) {
    model_.chat_template =
        std::make_shared<const text::ChatTemplate>(text::ChatTemplate::Create(source, {}).value());
    const std::string json = std::string(R"({"messages":[{"role":"assistant","content":null,
        "tool_calls":[{"type":"function","function":{"name":"add","arguments":)") +
                             arguments + "}}]}]}";
    simdjson::dom::parser parser;
    auto body = ParseBody(parser, json);
    const auto spec = ParseChatRequest(*body, model_, unknown_);
    EXPECT_TRUE(spec.ok()) << spec.status().ToString();
    const auto ids = EncodeConversation(std::get<text::ChatInput>(spec->prompts[0]), model_);
    return model_.tokenizer->Decode(*ids, text::SkipSpecial::kNo);
  };
  const char* objects =
      "{% for c in messages[0].tool_calls %}{{ c.function.arguments | tojson }}{% endfor %}";
  const char* texts = "{% for c in messages[0].tool_calls %}{{ c.function.arguments }}{% endfor %}";
  EXPECT_EQ(render(objects, R"("{\"a\": 2}")"), R"({"a": 2})");
  EXPECT_EQ(render(objects, R"({"a": 2})"), R"({"a": 2})");
  EXPECT_EQ(render(objects, R"("")"), "{}");
  EXPECT_EQ(render(texts, R"("{\"a\": 2}")"), R"({"a": 2})");
  EXPECT_EQ(render(texts, R"({"a":2})"), R"({"a":2})");
  EXPECT_EQ(render(texts, R"("{\"a\": ")"), "{\"a\": ");
  EXPECT_THAT(render(objects, R"("[1]")"), HasSubstr("[1]"));
}

}  // namespace
}  // namespace hayate::api
