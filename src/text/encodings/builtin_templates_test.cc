// The built-in templates against the vendor's own renderer (tests/golden/encodings).

#include "text/encodings/builtin_templates.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "text/chat_template.h"
#include "text/dialect/answer_parser.h"
#include "text/template/json.h"

namespace hayate::text {
namespace {

using jinja::Value;

Value Get(const Value& dict, std::string_view key) {
  const Value* found = dict.dict().Find(key);
  return found == nullptr ? Value::None() : *found;
}

constexpr std::string_view kEnd = "<｜end▁of▁sentence｜>";

// 14 November 2023, the date of the golden prompts.
jinja::RenderOptions OnThatDay() {
  jinja::RenderOptions options;
  options.now.tm_year = 123;
  options.now.tm_mon = 10;
  options.now.tm_mday = 14;
  return options;
}

void ExpectGoldenPrompts(const ChatTemplate& chat, std::ifstream lines) {
  int num_cases = 0;
  for (std::string line; std::getline(lines, line); ++num_cases) {
    const Value item = jinja::ParseJson(line).value();
    const Result<std::string> prompt = chat.Render({.messages = Get(item, "messages"),
                                                    .tools = Get(item, "tools"),
                                                    .kwargs = Get(item, "kwargs")},
                                                   OnThatDay());
    ASSERT_TRUE(prompt.ok()) << num_cases << ": " << prompt.status().message();
    ASSERT_EQ(prompt.value(), Get(item, "prompt").string()) << "line " << num_cases + 1;
  }
  EXPECT_EQ(num_cases, 80);
}

class BuiltInTemplateTest : public ::testing::TestWithParam<std::pair<const char*, const char*>> {
 protected:
  ChatTemplate Chat() const {
    return ChatTemplate::Create(
               BuiltInTemplate(GetParam().first),
               {.bos_token = "<｜begin▁of▁sentence｜>", .eos_token = std::string(kEnd)})
        .value();
  }
  std::ifstream Lines() const {
    return std::ifstream(std::string("tests/golden/encodings/") + GetParam().second);
  }
};

TEST_P(BuiltInTemplateTest, RendersTheVendorsPromptsByteForByte) {
  ExpectGoldenPrompts(Chat(), Lines());
}

std::string Text(const nlohmann::json& message, const char* field) {
  const auto found = message.find(field);
  return found == message.end() || !found->is_string() ? "" : found->get<std::string>();
}

// What the parser makes of an answer's text, as the message that it came from.
nlohmann::json Parsed(const AnswerFormat& format, const std::vector<std::string>& pieces) {
  const auto parser = MakeAnswerParser(format);
  std::vector<AnswerEvent> events;
  for (const std::string& piece : pieces) parser->Feed(piece, events);
  parser->Finish(events);
  std::string reasoning, content;
  std::vector<std::pair<std::string, std::string>> calls;
  for (const AnswerEvent& event : events) {
    switch (event.part) {
      case AnswerPart::kReasoning:
        reasoning += event.text;
        break;
      case AnswerPart::kContent:
        content += event.text;
        break;
      case AnswerPart::kCallName:
        calls.emplace_back(event.text, "");
        break;
      case AnswerPart::kCallArguments:
        calls.back().second += event.text;
        break;
    }
  }
  nlohmann::json message = {{"reasoning", reasoning}, {"content", content}};
  for (const auto& [name, arguments] : calls) {
    message["calls"].push_back({name, nlohmann::json::parse(arguments)});
  }
  return message;
}

// What the vendor's renderer writes for an assistant's message is what a model that was trained on
// it writes: the parser gives back the message.
TEST_P(BuiltInTemplateTest, WhatIsRenderedAsAnAnswerIsParsedToTheMessage) {
  const ChatTemplate chat = Chat();
  const std::string_view source = BuiltInTemplate(GetParam().first);
  std::ifstream lines = Lines();
  int num_answers = 0, num_calls = 0, num_thoughts = 0;
  for (std::string line; std::getline(lines, line);) {
    // The API takes no tool of such a name.
    for (size_t at = 0; (at = line.find(R"(f\"x)", at)) != std::string::npos;) {
      line.replace(at, 4, "f_x");
    }
    const auto item = nlohmann::json::parse(line);
    const auto render = [&](size_t count, ChatEnding ending) {
      nlohmann::json messages = item["messages"];
      messages.erase(messages.begin() + static_cast<ptrdiff_t>(count), messages.end());
      const Value all = jinja::ParseJson(line).value();
      return chat
          .Render({.messages = jinja::ParseJson(messages.dump()).value(),
                   .tools = Get(all, "tools"),
                   .ending = ending,
                   .kwargs = Get(all, "kwargs")})
          .value();
    };
    for (size_t k = 0; k < item["messages"].size(); ++k) {
      const nlohmann::json& message = item["messages"][k];
      if (message["role"] != "assistant") continue;
      const std::string prompt = render(k, ChatEnding::kGenerationPrompt);
      std::string answer = render(k + 1, ChatEnding::kClosed);
      if (!answer.starts_with(prompt) || !answer.ends_with(kEnd)) continue;
      answer = answer.substr(prompt.size(), answer.size() - prompt.size() - kEnd.size());
      AnswerFormat format{.reasoning = DetectReasoningDialect(source),
                          .tools = DetectToolDialect(source)};
      ASSERT_TRUE(format.reasoning != nullptr && format.tools != nullptr);
      const ThinkingPlace place = PlaceOfThinking(*format.reasoning, prompt);
      format.starts_inside = place == ThinkingPlace::kInside;
      if (place == ThinkingPlace::kNone) format.reasoning = nullptr;
      nlohmann::json expected = {
          {"reasoning", format.starts_inside ? Text(message, "reasoning_content") : ""},
          {"content", Text(message, "content")}};
      if (message.contains("tool_calls")) {
        for (const auto& call : message["tool_calls"]) {
          format.signatures.push_back({call["function"]["name"], {}});
          expected["calls"].push_back({call["function"]["name"], call["function"]["arguments"]});
          ++num_calls;
        }
      }
      std::vector<std::string> bytes;
      for (const char c : answer) bytes.emplace_back(1, c);
      ASSERT_EQ(Parsed(format, {answer}), expected) << line;
      ASSERT_EQ(Parsed(format, bytes), expected) << line;
      ++num_answers;
      num_thoughts += !expected["reasoning"].get<std::string>().empty();
    }
  }
  EXPECT_GT(num_answers, 25);
  EXPECT_GT(num_calls, 15);
  EXPECT_GE(num_thoughts, 5);
}

INSTANTIATE_TEST_SUITE_P(
    Deepseek, BuiltInTemplateTest,
    ::testing::Values(std::pair{"DeepseekV32ForCausalLM", "deepseek_v32.jsonl"},
                      std::pair{"DeepseekV4ForCausalLM", "deepseek_v4.jsonl"},
                      std::pair{"DeepseekV41ForCausalLM", "deepseek_v41.jsonl"}),
    [](const auto& test) { return std::string(test.param.first); });

TEST(BuiltInTemplate, GptOssHasThePromptsOfOpenAisEncoderByteForByte) {
  const ChatTemplate chat = ChatTemplate::Create(BuiltInTemplate("gpt-oss"), {}).value();
  ExpectGoldenPrompts(chat, std::ifstream("tests/golden/encodings/harmony.jsonl"));
  EXPECT_NE(DetectReasoningDialect(chat.source()), nullptr);
  EXPECT_NE(DetectToolDialect(chat.source()), nullptr);
  EXPECT_EQ(BuiltInTemplate("GptOssForCausalLM"), chat.source());
}

TEST(BuiltInTemplate, OtherArchitecturesHaveNone) {
  EXPECT_TRUE(BuiltInTemplate("LlamaForCausalLM").empty());
}

TEST(BuiltInTemplate, ATextThatIsNoObjectIsOneParameterNamedArguments) {
  const ChatTemplate chat =
      ChatTemplate::Create(BuiltInTemplate("DeepseekV4ForCausalLM"), {}).value();
  const Value messages =
      jinja::ParseJson(R"([{"role": "user", "content": [{"type": "text", "text": "a"},
                                                        {"type": "image_url"}]},
                           {"role": "assistant", "content": null, "tool_calls":
                            [{"id": "1", "function": {"name": "f", "arguments": "not {"}}]}])")
          .value();
  const std::string prompt =
      chat.Render({.messages = messages, .ending = ChatEnding::kClosed}).value();
  EXPECT_NE(prompt.find("<｜User｜>a\n\n[Unsupported image_url]<｜Assistant｜>"), std::string::npos)
      << prompt;
  EXPECT_NE(prompt.find(
                "<｜DSML｜parameter name=\"arguments\" string=\"true\">not {</｜DSML｜parameter>"),
            std::string::npos)
      << prompt;
}

}  // namespace
}  // namespace hayate::text
