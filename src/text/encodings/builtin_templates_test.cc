// The built-in templates against the vendor's own renderer (tests/golden/encodings).

#include "text/encodings/builtin_templates.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "text/chat_template.h"
#include "text/template/json.h"

namespace hayate::text {
namespace {

using jinja::Value;

Value Get(const Value& dict, std::string_view key) {
  const Value* found = dict.dict().Find(key);
  return found == nullptr ? Value::None() : *found;
}

class BuiltInTemplateTest : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(BuiltInTemplateTest, RendersTheVendorsPromptsByteForByte) {
  const auto [architecture, file] = GetParam();
  const ChatTemplate chat =
      ChatTemplate::Create(BuiltInTemplate(architecture), {.bos_token = "<｜begin▁of▁sentence｜>",
                                                           .eos_token = "<｜end▁of▁sentence｜>"})
          .value();
  std::ifstream lines(std::string("tests/golden/encodings/") + file);
  int num_cases = 0;
  for (std::string line; std::getline(lines, line); ++num_cases) {
    const Value item = jinja::ParseJson(line).value();
    const Result<std::string> prompt = chat.Render({.messages = Get(item, "messages"),
                                                    .tools = Get(item, "tools"),
                                                    .kwargs = Get(item, "kwargs")});
    ASSERT_TRUE(prompt.ok()) << num_cases << ": " << prompt.status().message();
    ASSERT_EQ(prompt.value(), Get(item, "prompt").string()) << "line " << num_cases + 1;
  }
  EXPECT_EQ(num_cases, 80);
}

INSTANTIATE_TEST_SUITE_P(
    Deepseek, BuiltInTemplateTest,
    ::testing::Values(std::pair{"DeepseekV32ForCausalLM", "deepseek_v32.jsonl"},
                      std::pair{"DeepseekV4ForCausalLM", "deepseek_v4.jsonl"},
                      std::pair{"DeepseekV41ForCausalLM", "deepseek_v41.jsonl"}),
    [](const auto& test) { return std::string(test.param.first); });

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
