// The bodies of /v1/responses and /v1/messages → GenerationSpec and prompt.

#include <gtest/gtest.h>

#include "api/conversation.h"
#include "api/field_reader.h"
#include "api/messages_parse.h"
#include "api/openai_parse.h"
#include "api/prepare.h"
#include "api/responses_parse.h"
#include "api/testing/byte_model.h"
#include "base/error.h"

namespace hayate::api {
namespace {

class SurfaceParse : public ::testing::Test {
 protected:
  Result<GenerationSpec> Responses(const std::string& fields) {
    simdjson::dom::parser parser;
    ASSIGN_OR_RETURN(auto body, ParseBody(parser, "{" + fields + "}"));
    const auto find = [&](std::string_view id) -> Result<std::vector<std::string>> {
      if (id == "resp_1") return stored_;
      return InvalidField("previous_response_id", "there is none");
    };
    return ParseResponsesRequest(body, model_, find, unknown_);
  }
  Result<GenerationSpec> Messages(const std::string& fields,
                                  MessagesUse use = MessagesUse::kGenerate) {
    simdjson::dom::parser parser;
    ASSIGN_OR_RETURN(auto body, ParseBody(parser, "{" + fields + "}"));
    return ParseMessagesRequest(body, model_, use, unknown_);
  }
  Result<GenerationSpec> Chat(const std::string& messages) {
    simdjson::dom::parser parser;
    ASSIGN_OR_RETURN(auto body, ParseBody(parser, R"({"messages":)" + messages + "}"));
    return ParseChatRequest(body, model_, unknown_);
  }
  std::string Prompt(const Result<GenerationSpec>& spec) {
    EXPECT_TRUE(spec.ok()) << spec.status().ToString();
    if (!spec.ok()) return {};
    return model_.chat_template->Render(std::get<text::ChatInput>(spec->prompts[0])).value();
  }
  static std::string Ask(const std::string& content) {
    return R"("max_tokens":9,"messages":[{"role":"user","content":)" + content + "}]";
  }

  ServedModel model_ = testing::ByteModel();
  std::vector<std::string> stored_;
  std::vector<std::string> unknown_;
};

TEST_F(SurfaceParse, ThreeSurfacesOfOneConversationGiveOnePrompt) {
  const std::string chat =
      Prompt(Chat(R"([{"role":"system","content":"S"},{"role":"user","content":"a"},
              {"role":"assistant","content":"b"},{"role":"user","content":"c"}])"));
  EXPECT_EQ(Prompt(Responses(R"("instructions":"S","input":[{"role":"user","content":"a"},
              {"type":"message","role":"assistant","content":[{"type":"output_text","text":"b"}]},
              {"role":"user","content":[{"type":"input_text","text":"c"}]}])")),
            chat);
  EXPECT_EQ(Prompt(Messages(R"("max_tokens":1,"system":[{"type":"text","text":"S"}],"messages":[
              {"role":"user","content":"a"},{"role":"assistant","content":"b"},
              {"role":"user","content":[{"type":"text","text":"c"}]}])")),
            chat);
}

TEST_F(SurfaceParse, CallsAndTheirResultsGiveOnePromptToo) {
  model_.chat_template = std::make_shared<const text::ChatTemplate>(
      text::ChatTemplate::Create(
          "{% for m in messages %}[{{ m.role }}:{{ m.content }}"
          "{% for c in m.tool_calls or [] %}<{{ c.id }} {{ c.function.name }} "
          "{{ c.function.arguments }}>{% endfor %}"
          "{% if m.tool_call_id %}({{ m.tool_call_id }}){% endif %}]{% endfor %}",
          {})
          .value());
  const std::string chat = Prompt(Chat(
      R"([{"role":"user","content":"q"},{"role":"assistant","content":"t","tool_calls":[
          {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},
          {"id":"c2","type":"function","function":{"name":"g","arguments":"{}"}}]},
          {"role":"tool","tool_call_id":"c1","content":"5"},
          {"role":"tool","tool_call_id":"c2","content":""}])"));
  EXPECT_EQ(chat, R"([user:q][assistant:t<c1 f {"a":1}><c2 g {}>][tool:5(c1)][tool:(c2)])");
  EXPECT_EQ(Prompt(Responses(R"("input":[{"role":"user","content":"q"},
              {"role":"assistant","content":"t"},
              {"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\":1}"},
              {"type":"function_call","call_id":"c2","name":"g","arguments":""},
              {"type":"function_call_output","call_id":"c1","output":"5"},
              {"type":"function_call_output","call_id":"c2","output":""}])")),
            R"([user:q][assistant:t<c1 f {"a":1}><c2 g {}>][tool:5(c1)][tool:(c2)])");
  EXPECT_EQ(Prompt(Messages(R"("max_tokens":1,"messages":[{"role":"user","content":"q"},
              {"role":"assistant","content":[{"type":"text","text":"t"},
                {"type":"tool_use","id":"c1","name":"f","input":{"a":1}},
                {"type":"tool_use","id":"c2","name":"g","input":{}}]},
              {"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"5"},
                {"type":"tool_result","tool_use_id":"c2"}]}])")),
            chat);
}

TEST_F(SurfaceParse, ATurnOfCallsAloneReachesATemplateThatWantsNoContent) {
  model_.chat_template = std::make_shared<const text::ChatTemplate>(
      text::ChatTemplate::Create(
          "{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}"
          "<{{ c.function.name + c.function.arguments }}>{% endfor %}"
          "{% else %}[{{ m.content }}]{% endif %}{% endfor %}",
          {})
          .value());
  const std::string call =
      R"("tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"}}]})";
  const std::string turns = R"([{"role":"user","content":"q"},{"role":"assistant","content":)";
  EXPECT_EQ(Prompt(Chat(turns + "null," + call + "]")), "[q]<f{}>");
  EXPECT_EQ(Prompt(Chat(turns + "\"\"," + call + "]")), "[q]<f{}>");
  EXPECT_EQ(Prompt(Chat(turns + "\"t\"," + call + "]")), "[q][t]");
}

TEST_F(SurfaceParse, ReasoningReachesATemplateThatCallsItThinking) {
  model_.chat_template = std::make_shared<const text::ChatTemplate>(
      text::ChatTemplate::Create("{% for message in messages %}[{{ message.content }}"
                                 "{% if message.thinking %}<{{ message.thinking }}>{% endif %}]"
                                 "{% endfor %}",
                                 {})
          .value());
  const std::string turns =
      R"([{"role":"user","content":"q"},{"role":"assistant","reasoning_content":"r","content":)";
  const std::string call =
      R"("tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"}}]})";
  EXPECT_EQ(Prompt(Chat(turns + R"("t"}])")), "[q][t<r>]");
  EXPECT_EQ(Prompt(Chat(turns + "null," + call + "]")), "[q][<r>]");
  EXPECT_EQ(Prompt(Chat(turns + R"("t",)" + call + "]")), "[q][t]");
}

TEST_F(SurfaceParse, AResponseGoesOnFromTheOneBefore) {
  stored_ = {R"({"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]})",
             R"({"id":"rs_1","type":"reasoning","summary":[],"content":[]})",
             R"({"id":"msg_1","type":"message","role":"assistant","status":"completed",
                 "content":[{"type":"output_text","text":"b","annotations":[],"logprobs":[]}]})"};
  const auto spec = Responses(R"("previous_response_id":"resp_1","input":"c")");
  EXPECT_EQ(Prompt(spec), Prompt(Chat(R"([{"role":"user","content":"a"},
      {"role":"assistant","content":"b"},{"role":"user","content":"c"}])")));
  ASSERT_EQ(spec->response->input->size(), 4u);
  EXPECT_TRUE((*spec->response->input)[2].starts_with(R"({"id":"msg_1")"));
  EXPECT_EQ(Responses(R"("previous_response_id":"resp_2","input":"c")").status().param(),
            "previous_response_id");
}

TEST_F(SurfaceParse, SeveralTextsOfTheSystemAreOneMessage) {
  EXPECT_EQ(
      Prompt(Responses(R"("instructions":"A","input":[{"role":"developer","content":"B"},
      {"role":"user","content":"x"}])")),
      Prompt(Chat(R"([{"role":"system","content":"A\n\nB"},{"role":"user","content":"x"}])")));
}

TEST_F(SurfaceParse, AResponseRepeatsItsSettings) {
  const auto spec = Responses(
      R"("input":"a","temperature":0,"metadata":{"k":"v"},"max_output_tokens":5,
         "tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":false}],
         "tool_choice":{"type":"function","name":"f"},
         "text":{"format":{"type":"json_schema","name":"n","schema":{"type":"null"}}})");
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  simdjson::dom::parser parser;
  const std::string json = "{" + spec->response->echo + "}";
  const simdjson::dom::object echo = parser.parse(json).value();
  EXPECT_EQ(std::string(echo["metadata"]["k"]), "v");
  EXPECT_EQ(int64_t(echo["max_output_tokens"]), 5);
  EXPECT_EQ(double(echo["temperature"]), 0.0);
  EXPECT_EQ(std::string(echo["tools"].at(0)["name"]), "f");
  EXPECT_EQ(spec->tools.choice, ToolChoice::kNamed);
  EXPECT_EQ(spec->grammar->field, "text.format.schema");
}

TEST_F(SurfaceParse, WhatAResponseCannotDoIsRefusedByName) {
  const struct {
    const char* fields;
    const char* param;
  } cases[] = {
      {R"("x":1)", "input"},
      {R"("input":[])", "input"},
      {R"("input":7)", "input"},
      {R"("input":[{"role":"tool","content":"a"}])", "input[0].role"},
      {R"("input":[{"type":"function_call"}])", "input[0]"},
      {R"("input":[{"type":"item_reference","id":"x"}])", "input[0].type"},
      {R"("input":[{"role":"user","content":[{"type":"input_image"}]}])",
       "input[0].content[0].type"},
      {R"("input":"a","tools":[{"type":"web_search"}])", "tools[0].type"},
      {R"("input":"a","truncation":"auto")", "truncation"},
      {R"("input":"a","background":true,"store":false)", "background"},
      {R"("input":"a","max_output_tokens":0)", "max_output_tokens"},
      {R"("input":"a","text":{"format":{"type":"yaml"}})", "text.format"},
      {R"("input":"a","conversation":"c")", "conversation"},
      {R"("input":"a","n":2)", "n"},
      {R"("input":"a","top_logprobs":21)", "top_logprobs"},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(Responses(test.fields).status().param(), test.param) << test.fields;
  }
}

TEST_F(SurfaceParse, WhatAMessageCannotDoIsRefusedByName) {
  const struct {
    std::string fields;
    const char* param;
  } cases[] = {
      {R"("messages":[{"role":"user","content":"a"}])", "max_tokens"},
      {R"("max_tokens":1,"messages":[])", "messages"},
      {R"("max_tokens":1,"messages":[{"role":"system","content":"a"}])", "messages[0].role"},
      {R"("max_tokens":1,"messages":[{"role":"user"}])", "messages[0].content"},
      {Ask(R"([{"type":"image"}])"), "messages[0].content[0].type"},
      {Ask(R"([{"type":"tool_use","id":"a","name":"f"}])"), "messages[0].content[0].type"},
      {Ask(R"([{"type":"tool_result"}])"), "messages[0].content[0].tool_use_id"},
      {Ask("\"a\"") + R"(,"tools":[{"type":"bash_20250124","name":"bash"}])", "tools[0].type"},
      {Ask("\"a\"") + R"(,"tool_choice":{"type":"any"})", "tool_choice"},
      {Ask("\"a\"") + R"(,"tool_choice":"any")", "tool_choice"},
      {Ask("\"a\"") + R"(,"thinking":{"type":"enabled"})", "thinking.budget_tokens"},
      {Ask("\"a\"") + R"(,"thinking":{"type":"enabled","budget_tokens":9})",
       "thinking.budget_tokens"},
      {Ask("\"a\"") + R"(,"thinking":{"type":"on"})", "thinking.type"},
      {Ask("\"a\"") + R"(,"stop_sequences":[1])", "stop_sequences"},
      {Ask("\"a\"") + R"(,"mcp_servers":[])", "mcp_servers"},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(Messages(test.fields).status().param(), test.param) << test.fields;
  }
  EXPECT_TRUE(Messages(R"("messages":[{"role":"user","content":"a"}])", MessagesUse::kCount).ok());
}

TEST_F(SurfaceParse, MessagesChooseToolsByTheirOwnWords) {
  const std::string tools =
      R"(,"tools":[{"name":"f","description":"d","input_schema":{"type":"object"}}])";
  const auto choice = [&](const std::string& value) {
    return Messages(Ask("\"a\"") + tools + R"(,"tool_choice":)" + value)->tools;
  };
  EXPECT_EQ(Messages(Ask("\"a\"") + tools)->tools.choice, ToolChoice::kAuto);
  EXPECT_EQ(choice(R"({"type":"any"})").choice, ToolChoice::kRequired);
  EXPECT_EQ(choice(R"({"type":"none"})").choice, ToolChoice::kNone);
  EXPECT_EQ(choice(R"({"type":"tool","name":"f"})").named, "f");
  EXPECT_TRUE(choice(R"({"type":"any"})").parallel);
  EXPECT_FALSE(choice(R"({"type":"any","disable_parallel_tool_use":true})").parallel);
}

TEST_F(SurfaceParse, AnAssistantsLastTextIsTheBeginningOfTheAnswer) {
  const std::string prompt = Prompt(Messages(
      R"("max_tokens":1,"messages":[{"role":"user","content":"a"},
         {"role":"assistant","content":"The"}])"));
  EXPECT_TRUE(prompt.ends_with("The")) << prompt;
}

TEST_F(SurfaceParse, ThinkingThatIsNotAskedForIsOff) {
  model_.reasoning = text::FindReasoningDialect("qwen3");
  const auto enabled = [&](const std::string& fields) {
    const auto spec = Messages(Ask("\"a\"") + fields);
    return std::get<text::ChatInput>(spec->prompts[0])
        .kwargs.dict()
        .Find("enable_thinking")
        ->as_bool();
  };
  EXPECT_FALSE(enabled(""));
  EXPECT_FALSE(enabled(R"(,"thinking":{"type":"disabled"})"));
  EXPECT_TRUE(enabled(R"(,"thinking":{"type":"enabled","budget_tokens":3})"));
  EXPECT_TRUE(enabled(R"(,"thinking":{"type":"adaptive"})"));
  EXPECT_EQ(Messages(Ask("\"a\"") + R"(,"thinking":{"type":"enabled","budget_tokens":3})")
                ->thinking_budget,
            3);
}

}  // namespace
}  // namespace hayate::api
