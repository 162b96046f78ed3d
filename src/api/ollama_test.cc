// Ollama's requests and answers.

#include <gtest/gtest.h>
#include <simdjson.h>

#include "api/field_reader.h"
#include "api/formatter.h"
#include "api/ollama_parse.h"
#include "api/prepare.h"
#include "api/testing/byte_model.h"

namespace hayate::api {
namespace {

using testing::ByteModel;
using text::AnswerPart;

class OllamaTest : public ::testing::Test {
 protected:
  Result<GenerationSpec> Chat(std::string_view json) { return Parse(ParseOllamaChat, json); }
  Result<GenerationSpec> Generate(std::string_view json) {
    return Parse(ParseOllamaGenerate, json);
  }
  // Lines of JSON, each parsed by itself.
  std::vector<std::string> Lines(const std::string& out) {
    std::vector<std::string> lines;
    for (size_t begin = 0; begin < out.size();) {
      const size_t end = out.find('\n', begin);
      EXPECT_NE(end, std::string::npos);
      lines.push_back(out.substr(begin, end - begin));
      begin = end + 1;
    }
    return lines;
  }
  simdjson::dom::element Json(const std::string& text) { return parser_.parse(text).value(); }

  ServedModel model_ = ByteModel();
  std::vector<std::string> unknown_;
  simdjson::dom::parser parser_;

 private:
  template <typename Parser>
  Result<GenerationSpec> Parse(Parser parse, std::string_view json) {
    simdjson::dom::parser parser;
    ASSIGN_OR_RETURN(auto body, ParseBody(parser, json));
    unknown_.clear();
    return parse(body, model_, unknown_);
  }
};

TEST_F(OllamaTest, OptionsBecomeSampling) {
  const auto spec = Chat(R"({"model":"m:latest","messages":[{"role":"user","content":"a"}],
    "options":{"temperature":0.5,"num_predict":7,"repeat_penalty":1.2,"seed":3,"stop":"x",
    "num_ctx":4096,"mirostat":0}})");
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_FLOAT_EQ(spec->sampling.temperature, 0.5f);
  EXPECT_FLOAT_EQ(spec->sampling.repetition_penalty, 1.2f);
  EXPECT_EQ(spec->max_new_tokens, 7);
  EXPECT_EQ(spec->seed, 3);
  EXPECT_NE(spec->stop_strings, nullptr);
  EXPECT_EQ(spec->model, "m");
  EXPECT_TRUE(spec->stream);
  EXPECT_TRUE(unknown_.empty());
  EXPECT_FALSE(Chat(R"({"messages":[{"role":"user","content":"a"}],"options":{"num_predict":-1}})")
                   ->max_new_tokens);
}

TEST_F(OllamaTest, FormatsBecomeGrammars) {
  const std::string ask = R"({"prompt":"a","format":)";
  EXPECT_EQ(Generate(ask + R"("json"})")->grammar->kind, grammar::GrammarKind::kJsonObject);
  const auto schema = Generate(ask + R"({"type":"integer"}})");
  EXPECT_EQ(schema->grammar->kind, grammar::GrammarKind::kJsonSchema);
  EXPECT_EQ(schema->grammar->text, R"({"type":"integer"})");
  EXPECT_FALSE(Generate(ask + R"(""})")->grammar);
  EXPECT_EQ(Generate(ask + R"("yaml"})").status().param(), "format");
}

TEST_F(OllamaTest, APromptIsAChatUnlessItIsRaw) {
  const auto chat = Generate(R"({"prompt":"hi","system":"s"})");
  const auto prepared = Prepare(*chat, model_);
  ASSERT_TRUE(prepared.ok()) << prepared.status().ToString();
  const std::string text =
      model_.tokenizer->Decode(prepared->prompts[0].ids, text::SkipSpecial::kNo);
  EXPECT_LT(text.find("system\ns"), text.find("user\nhi"));
  const auto raw = Prepare(*Generate(R"({"prompt":"hi","raw":true})"), model_);
  EXPECT_EQ(raw->prompts[0].ids, (std::vector<TokenId>{'h', 'i'}));
}

TEST_F(OllamaTest, ErrorsNameTheInnermostField) {
  const struct {
    const char* json;
    const char* param;
  } cases[] = {
      {R"({"messages":[]})", "messages"},
      {R"({"messages":[1]})", "messages[0]"},
      {R"({"messages":[{"content":"a"}]})", "messages[0].role"},
      {R"({"messages":[{"role":"user","content":1}]})", "messages[0].content"},
      {R"({"messages":[{"role":"user","images":["x"]}]})", "messages[0].images"},
      {R"({"messages":[{"role":"assistant","tool_calls":[{"function":{}}]}]})",
       "messages[0].tool_calls[0].function"},
      {R"({"messages":[{"role":"user","content":"a"}],"options":{"top_p":2}})", "options.top_p"},
      {R"({"messages":[{"role":"user","content":"a"}],"think":1})", "think"},
  };
  for (const auto& c : cases) EXPECT_EQ(Chat(c.json).status().param(), c.param) << c.json;
  EXPECT_EQ(Generate("{}").status().param(), "prompt");
  EXPECT_EQ(Generate(R"({"prompt":"a","suffix":"b"})").status().param(), "suffix");
}

TEST_F(OllamaTest, AStreamIsLinesWithPartsAndWholeCalls) {
  GenerationSpec spec;
  spec.dialect = Dialect::kOllamaChat;
  spec.prompts.emplace_back(std::string("p"));
  spec.format.tools = &text::PlainToolDialect();
  Choice choice(spec, model_, {.tokens = 1});
  const auto formatter = MakeOllamaFormatter({.spec = &spec, .model = &model_});
  EXPECT_EQ(formatter->stream_type(), "application/x-ndjson");
  const ChoiceView view{.choice = &choice};
  std::string out;
  const auto push = [&](std::vector<text::AnswerEvent> parts) {
    ChoiceDelta delta;
    delta.parts = std::move(parts);
    formatter->Delta(view, delta, {}, out);
  };
  push({{AnswerPart::kReasoning, "hm"}});
  push({{AnswerPart::kContent, "so "}, {AnswerPart::kCallName, "f", 0}});
  push({{AnswerPart::kCallArguments, R"({"a":)", 0}});
  push({{AnswerPart::kCallArguments, "1}", 0}, {AnswerPart::kCallName, "g", 1}});
  ChoiceDelta end;
  end.parts = {{AnswerPart::kCallArguments, R"({"cut":"of)", 1}};
  end.end = ChoiceEnd{.reason = FinishReason::kLength};
  formatter->Delta(view, end, {}, out);
  formatter->Close({.prompt_tokens = 4, .completion_tokens = 9}, out);
  const auto lines = Lines(out);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(std::string_view(Json(lines[0])["message"]["thinking"]), "hm");
  EXPECT_EQ(std::string_view(Json(lines[1])["message"]["content"]), "so ");
  EXPECT_EQ(int64_t(Json(lines[2]).at_pointer("/message/tool_calls/0/function/arguments/a")), 1);
  EXPECT_EQ(std::string_view(Json(lines[3]).at_pointer("/message/tool_calls/0/function/name")),
            "g");
  EXPECT_EQ(bool(Json(lines[3])["done"]), false);
  const auto last = Json(lines[4]);
  EXPECT_EQ(bool(last["done"]), true);
  EXPECT_EQ(std::string_view(last["done_reason"]), "length");
  EXPECT_EQ(int64_t(last["prompt_eval_count"]), 4);
  EXPECT_EQ(int64_t(last["eval_count"]), 9);
}

}  // namespace
}  // namespace hayate::api
