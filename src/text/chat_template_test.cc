#include "text/chat_template.h"

#include <gtest/gtest.h>

#include "text/template/json.h"

namespace hayate::text {
namespace {

using jinja::ParseJson;
using jinja::Value;

Value Conversation() {
  const ChatMessage messages[] = {{"system", "Be brief."}, {"user", "Hi"}, {"assistant", " Hel "}};
  return MessagesValue(messages);
}

TEST(ChatTemplate, ChatMlRendersEveryMessageAndTheGenerationPrompt) {
  const ChatTemplate chat = ChatTemplate::ChatMl({});
  const Result<std::string> prompt = chat.Render({.messages = Conversation()});
  EXPECT_EQ(prompt.value(),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n Hel <|im_end|>\n<|im_start|>assistant\n");
}

TEST(ChatTemplate, ContinuesTheFinalMessageWhetherTheTemplateTrimsItOrNot) {
  const ChatInput input{.messages = Conversation(), .ending = ChatEnding::kContinueFinalMessage};
  const char* kept = "{% for m in messages %}[{{ m.content }}]{% endfor %}";
  const char* trimmed = "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}";
  EXPECT_EQ(ChatTemplate::Create(kept, {}).value().Render(input).value(), "[Be brief.][Hi][ Hel ");
  EXPECT_EQ(ChatTemplate::Create(trimmed, {}).value().Render(input).value(), "[Be brief.][Hi][Hel");
  const char* dropped = "{% for m in messages[:1] %}[{{ m.content }}]{% endfor %}";
  EXPECT_EQ(ChatTemplate::Create(dropped, {}).value().Render(input).status().param(), "messages");
}

TEST(ChatTemplate, OffersTheVariablesOfTransformers) {
  const char* source =
      "{{ bos_token }}{{ eos_token is defined }}{{ tools is none }}{{ enable_thinking }}"
      "{{ add_generation_prompt }}";
  const ChatTemplate chat = ChatTemplate::Create(source, {.bos_token = "<s>"}).value();
  const ChatInput input{.messages = Conversation(),
                        .kwargs = ParseJson(R"({"enable_thinking": false})").value()};
  EXPECT_EQ(chat.Render(input).value(), "<s>FalseTrueFalseTrue");
}

TEST(ChatTemplate, RefusesWrongShapesAndReservedNames) {
  const ChatTemplate chat = ChatTemplate::ChatMl({});
  EXPECT_EQ(chat.Render({.messages = Value::String("hi")}).status().param(), "messages");
  EXPECT_EQ(chat.Render({.messages = Conversation(), .kwargs = Value::Int(3)}).status().param(),
            "chat_template_kwargs");
  EXPECT_EQ(
      chat.Render({.messages = Conversation(), .kwargs = ParseJson(R"({"messages": []})").value()})
          .status()
          .param(),
      "chat_template_kwargs");
}

TEST(ChatTemplate, ATemplatesOwnErrorIsItsMessageAlone) {
  const char* source =
      "{% if messages[0].role != 'user' %}{{ raise_exception('Start with a user.') }}{% endif %}";
  const Status status =
      ChatTemplate::Create(source, {}).value().Render({.messages = Conversation()}).status();
  EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "Start with a user.");
}

TEST(ChatTemplate, TellsWhetherTheTemplateWalksContentParts) {
  const auto format = [](const char* source) {
    return ChatTemplate::Create(source, {}).value().content_format();
  };
  EXPECT_EQ(format("{% for m in messages %}{{ m.content }}{% endfor %}"), ContentFormat::kText);
  EXPECT_EQ(format("{% for m in messages %}{% for part in m['content'] %}{{ part.text }}"
                   "{% endfor %}{% endfor %}"),
            ContentFormat::kParts);
}

TEST(ChatTemplate, KnowsTheShapeInWhichCallsReachThePrompt) {
  const auto shape = [](const std::string& call) {
    const std::string source =
        "{% for m in messages %}" + call + "{{ m.content or '' }}{% endfor %}";
    const CallShape found = ChatTemplate::Create(source, {}).value().call_shape();
    return std::pair(found.argument_objects, found.none_content);
  };
  const std::string loop = "{% for c in m.tool_calls or [] %}{{ c.function.name }}";
  const std::pair objects(true, false), text(false, false), text_without_content(false, true);
  EXPECT_EQ(shape(loop + "{{ c.function.arguments | tojson }}{% endfor %}"), objects);
  EXPECT_EQ(shape(loop + "{% set a = c.function.arguments %}{% for k, v in a.items() %}"
                         "{{ k ~ v }}{% endfor %}{% endfor %}"),
            objects);
  EXPECT_EQ(shape(loop + "{{ c.function.arguments }}{% endfor %}"), text);
  EXPECT_EQ(shape(loop + "{{ '' + c.function.arguments }}{% endfor %}"), text);
  EXPECT_EQ(shape("{% if m.content is none %}" + loop +
                  "{{ '' + c.function.arguments }}{% endfor %}{% endif %}"),
            text_without_content);
  // What refuses every such conversation is judged by its text.
  EXPECT_EQ(shape("{{ raise_exception('no') }}" + loop +
                  "{{ c.function.arguments | tojson }}{% endfor %}"),
            objects);
  EXPECT_EQ(shape("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}"
                  "{% endfor %}"),
            text);
}

}  // namespace
}  // namespace hayate::text
