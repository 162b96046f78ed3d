// Families whose checkpoints ship a template: the prompts that the published templates make
// (tests/golden/encodings), from templates of our own that say the same (tests/text/templates).

#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>

#include "text/chat_template.h"
#include "text/template/json.h"

namespace hayate::text {
namespace {

using jinja::Value;

struct Family {
  const char* name;
  SpecialTokenTexts tokens;
  CallShape calls;
};
void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

const SpecialTokenTexts kDeepseek = {.bos_token = "<｜begin▁of▁sentence｜>",
                                     .eos_token = "<｜end▁of▁sentence｜>"};

Value Get(const Value& dict, std::string_view key) {
  const Value* found = dict.dict().Find(key);
  return found == nullptr ? Value::None() : *found;
}

class PublishedTemplate : public ::testing::TestWithParam<Family> {
 protected:
  PublishedTemplate() {
    std::ostringstream source;
    source << std::ifstream("tests/text/templates/" + Name() + ".jinja").rdbuf();
    chat_.emplace(ChatTemplate::Create(source.str(), GetParam().tokens).value());
  }
  static std::string Name() { return GetParam().name; }

  std::optional<ChatTemplate> chat_;
};

TEST_P(PublishedTemplate, GivesTheOfficialPromptsByteForByte) {
  std::ifstream lines("tests/golden/encodings/" + Name() + ".jsonl");
  int num_cases = 0;
  for (std::string line; std::getline(lines, line); ++num_cases) {
    const Value item = jinja::ParseJson(line).value();
    const Result<std::string> prompt =
        chat_->Render({.messages = Get(item, "messages"),
                       .tools = Get(item, "tools"),
                       .ending = Get(item, "generates").as_bool() ? ChatEnding::kGenerationPrompt
                                                                  : ChatEnding::kClosed,
                       .kwargs = Get(item, "kwargs")});
    ASSERT_TRUE(prompt.ok()) << num_cases << ": " << prompt.status().message();
    ASSERT_EQ(prompt.value(), Get(item, "prompt").string()) << "line " << num_cases + 1;
  }
  EXPECT_EQ(num_cases, 60);
}

TEST_P(PublishedTemplate, IsGivenCallsAsItTakesThem) {
  EXPECT_EQ(chat_->call_shape().argument_objects, GetParam().calls.argument_objects);
  EXPECT_EQ(chat_->call_shape().none_content, GetParam().calls.none_content);
}

INSTANTIATE_TEST_SUITE_P(
    Families, PublishedTemplate,
    ::testing::Values(Family{"deepseek_v3", kDeepseek, {.argument_objects = false}},
                      Family{"deepseek_r1", kDeepseek, {.none_content = true}},
                      Family{"deepseek_r1_0528", kDeepseek, {.argument_objects = true}},
                      Family{"deepseek_v31", kDeepseek, {.argument_objects = true}},
                      Family{"qwen3", {.eos_token = "<|im_end|>"}, {.argument_objects = true}}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace hayate::text
