// The three request parsers: JSON body → GenerationSpec.

#include <gtest/gtest.h>

#include "api/field_reader.h"
#include "api/native_parse.h"
#include "api/openai_parse.h"
#include "api/prepare.h"
#include "api/testing/byte_model.h"

namespace hayate::api {
namespace {

using testing::ByteModel;

class RequestParse : public ::testing::Test {
 protected:
  Result<GenerationSpec> Chat(std::string_view json) { return Parse(ParseChatRequest, json); }
  Result<GenerationSpec> Completion(std::string_view json) {
    return Parse(ParseCompletionRequest, json);
  }
  Result<GenerationSpec> Generate(std::string_view json) {
    return Parse(ParseGenerateRequest, json);
  }

  ServedModel model_ = ByteModel();
  std::vector<std::string> unknown_;

 private:
  template <typename Parser>
  Result<GenerationSpec> Parse(Parser parse, std::string_view json) {
    simdjson::dom::parser parser;
    ASSIGN_OR_RETURN(auto body, ParseBody(parser, json));
    unknown_.clear();
    return parse(body, model_, unknown_);
  }
};

TEST_F(RequestParse, TheRequestWinsOverTheCheckpointAndThatOverTheApi) {
  model_.defaults.temperature = 0.6;
  model_.defaults.top_k = 20;
  const auto plain = Chat(R"({"messages":[{"role":"user","content":"a"}]})");
  EXPECT_FLOAT_EQ(plain->sampling.temperature, 0.6f);
  EXPECT_EQ(plain->sampling.top_k, 20);
  EXPECT_FLOAT_EQ(plain->sampling.top_p, 1.0f);
  const auto own =
      Chat(R"({"messages":[{"role":"user","content":"a"}],"temperature":0,"top_k":-1})");
  EXPECT_TRUE(own->sampling.greedy());
  EXPECT_EQ(own->sampling.top_k, 0);
}

TEST_F(RequestParse, DialectsHaveTheirOwnDefaultLimits) {
  EXPECT_FALSE(Chat(R"({"messages":[{"role":"user","content":"a"}]})")->max_new_tokens);
  EXPECT_EQ(Completion(R"({"prompt":"a"})")->max_new_tokens, 16);
  EXPECT_EQ(Generate(R"({"text":"a"})")->max_new_tokens, 128);
  EXPECT_EQ(Generate(R"({"text":"a","sampling_params":{}})")->max_new_tokens, 128);
}

TEST_F(RequestParse, EmptyStopStringsAreNoStop) {
  EXPECT_EQ(Completion(R"({"prompt":"a","stop":""})")->stop_strings, nullptr);
  EXPECT_EQ(Completion(R"({"prompt":"a","stop":["",""]})")->stop_strings, nullptr);
  const auto spec = Completion(R"({"prompt":"a","stop":["","x"]})");
  EXPECT_EQ(spec->stop_strings->strings(), std::vector<std::string>({"x"}));
}

TEST_F(RequestParse, SaltsOfDifferentSplitsAreDifferentNamespaces) {
  const auto one = Completion(R"({"prompt":"a","cache_salt":"ab","extra_key":"c"})");
  const auto two = Completion(R"({"prompt":"a","cache_salt":"a","extra_key":"bc"})");
  EXPECT_NE(one->cache_namespace, two->cache_namespace);
}

TEST_F(RequestParse, ErrorsNameTheInnermostField) {
  const struct {
    Status status;
    const char* param;
  } cases[] = {
      {Generate(R"({"text":"a","sampling_params":{"min_p":2}})").status(), "sampling_params.min_p"},
      {Generate(R"({"input_ids":[[1],[259]]})").status(), "input_ids[1]"},
      {Generate(R"({"text":["a",1]})").status(), "text[1]"},
      {Completion(R"({"prompt":["a",[1]],"n":0})").status(), "n"},
      {Completion(R"({"prompt":["a",{}]})").status(), "prompt[1]"},
      {Completion(R"({"prompt":"a","stream":true,"stream_options":{"include_usage":1}})").status(),
       "stream_options.include_usage"},
      {Chat(R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":[{}]}]})")
           .status(),
       "messages[1].content[0]"},
      {Chat(R"({"messages":[{"role":"user","content":"a"}],"rid":""})").status(), "rid"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(c.status.code(), ErrorCode::kInvalidArgument) << c.param;
    EXPECT_EQ(c.status.param(), c.param) << c.status.message();
  }
}

TEST_F(RequestParse, UnknownFieldsAreListedAndKnownOnesAreNot) {
  ASSERT_TRUE(Chat(R"({"messages":[{"role":"user","content":"a"}],"user":"u","odd":1,"seed":3,
                       "temperature":1,"stop":"x","logit_bias":{},"tools":[],"n":1})")
                  .ok());
  EXPECT_EQ(unknown_, std::vector<std::string>({"odd"}));
}

TEST_F(RequestParse, ATurnOfASessionIsOnePrompt) {
  const auto turn =
      Generate(R"({"text":"a","session_params":{"id":"s","rid":"r","offset":3,"replace":true}})");
  ASSERT_TRUE(turn.ok()) << turn.status().ToString();
  EXPECT_EQ(turn->session->session, "s");
  EXPECT_EQ(turn->session->parent, "r");
  EXPECT_EQ(turn->session->offset, 3);
  EXPECT_TRUE(turn->session->replace);
  EXPECT_FALSE(Generate(R"({"text":"a","session_params":{"id":"s","rid":""}})")->session->parent);
  const struct {
    const char* json;
    const char* param;
  } cases[] = {
      {R"({"text":"a","session_params":{}})", "session_params.id"},
      {R"({"text":"a","session_params":{"id":1}})", "session_params.id"},
      {R"({"text":"a","session_params":{"id":"s","offset":-1}})", "session_params.offset"},
      {R"({"text":["a"],"session_params":{"id":"s"}})", "session_params"},
      {R"({"text":"a","session_params":{"id":"s"},"sampling_params":{"n":2}})", "session_params"},
  };
  for (const auto& c : cases) EXPECT_EQ(Generate(c.json).status().param(), c.param) << c.json;
}

TEST_F(RequestParse, WhatIsNotGivenIsRefusedByName) {
  for (const std::string name :
       {"return_hidden_states", "return_routed_experts", "return_entropy", "background"}) {
    EXPECT_TRUE(Generate(R"({"text":"a",")" + name + R"(":false})").ok()) << name;
    EXPECT_EQ(Generate(R"({"text":"a",")" + name + R"(":true})").status().param(), name);
  }
  EXPECT_EQ(Generate(R"({"text":"a","lora_path":"x"})").status().param(), "lora_path");
  EXPECT_TRUE(Generate(R"({"text":"a","lora_path":null})").ok());
}

TEST_F(RequestParse, TokensAskedForByIdAreBounded) {
  const auto asked = Generate(R"({"text":"a","return_logprob":true,"token_ids_logprob":[3,1]})");
  EXPECT_EQ(asked->logprobs.token_ids, (std::vector<TokenId>{3, 1}));
  EXPECT_TRUE(Generate(R"({"text":"a","token_ids_logprob":[3]})")->logprobs.token_ids.empty());
  std::string many = "0";
  for (int i = 0; i < 64; ++i) many += ",0";
  for (const std::string& ids : {many, std::string("-1"), std::string("1000000")}) {
    EXPECT_EQ(Generate(R"({"text":"a","return_logprob":true,"token_ids_logprob":[)" + ids + "]}")
                  .status()
                  .param(),
              "token_ids_logprob");
  }
}

TEST_F(RequestParse, NamesOfABatchAreTheirOwnOrNumbered) {
  EXPECT_FALSE(Generate(R"({"text":"a","rid":"r"})")->HasNamePerPrompt());
  EXPECT_EQ(Generate(R"({"text":["a","b"],"rid":"r"})")->NameOfPrompt(1), "r_1");
  EXPECT_EQ(Generate(R"({"text":["a","b"],"rid":["r","s"]})")->NameOfPrompt(1), "s");
}

TEST_F(RequestParse, AListOfSamplingParamsHasOneObjectForEachPrompt) {
  const auto spec = Generate(R"({"text":["a","b"],"sampling_params":[
      {"temperature":0,"stop":"x","max_new_tokens":3,"n":2},
      {"top_k":5,"sampling_seed":9,"stop_token_ids":[4],"n":2}]})");
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->n, 2);
  EXPECT_EQ(spec->OfPrompt(0).sampling.temperature, 0.0f);
  EXPECT_NE(spec->OfPrompt(0).stop_strings, nullptr);
  EXPECT_EQ(spec->OfPrompt(1).sampling.top_k, 5);
  EXPECT_EQ(spec->OfPrompt(1).seed, 9);
  EXPECT_EQ(spec->OfPrompt(1).stop_token_ids, std::vector<TokenId>{4});
  EXPECT_EQ(spec->OfPrompt(1).stop_strings, nullptr);
  const auto prepared = Prepare(*spec, model_);
  ASSERT_TRUE(prepared.ok());
  EXPECT_EQ(prepared->prompts[0].max_new_tokens, 3);
  EXPECT_GT(prepared->prompts[1].max_new_tokens, 3);
}

TEST_F(RequestParse, AListOfSamplingParamsMustFit) {
  const auto param = [&](std::string_view params) {
    return Generate(R"({"text":["a","b"],"sampling_params":)" + std::string(params) + "}")
        .status()
        .param();
  };
  EXPECT_EQ(param("[]"), "sampling_params");
  EXPECT_EQ(param("5"), "sampling_params");
  EXPECT_EQ(param("[{}]"), "sampling_params");
  EXPECT_EQ(param("[{},{},{}]"), "sampling_params");
  EXPECT_EQ(param("[{},5]"), "sampling_params[1]");
  EXPECT_EQ(param(R"([{},{"n":2}])"), "sampling_params[1].n");
  EXPECT_EQ(param(R"([{},{"top_p":2}])"), "sampling_params[1].top_p");
}

TEST_F(RequestParse, PreparedPromptsKeepTheAnswerInsideTheContext) {
  const std::string long_text(testing::kMaxContext - 1, 'x');
  const auto capped = Completion(R"({"prompt":")" + long_text + R"(","max_tokens":50})");
  EXPECT_EQ(Prepare(*capped, model_)->prompts[0].max_new_tokens, 1);
  const auto full = Completion(R"({"prompt":")" + long_text + R"(x","max_tokens":1})");
  EXPECT_EQ(Prepare(*full, model_).status().code(), ErrorCode::kContextTooLong);
  EXPECT_EQ(Prepare(*full, model_).status().param(), "prompt");
  // Far too long: said without tokenising it.
  const auto huge = Completion(R"({"prompt":")" + std::string(1 << 20, 'x') + R"("})");
  const Status refused = Prepare(*huge, model_).status();
  EXPECT_EQ(refused.code(), ErrorCode::kContextTooLong);
  EXPECT_EQ(refused.param(), "prompt");
  EXPECT_NE(refused.message().find("1048576 bytes"), std::string::npos) << refused.message();
  const auto scored = Completion(R"({"prompt":")" + long_text + R"(x","max_tokens":0})");
  EXPECT_EQ(Prepare(*scored, model_)->prompts[0].max_new_tokens, 0);
  const auto empty = Generate(R"({"text":""})");
  EXPECT_EQ(Prepare(*empty, model_).status().param(), "text");
}

TEST_F(RequestParse, TheOperatorBoundsPromptsAndAnswers) {
  model_.max_prompt = 10;
  model_.max_output = 5;
  const auto fits = Prepare(*Generate(R"({"text":"0123456789"})"), model_);
  EXPECT_EQ(fits->prompts[0].max_new_tokens, 5);
  const auto refused = Prepare(*Generate(R"({"text":"0123456789a"})"), model_);
  EXPECT_EQ(refused.status().code(), ErrorCode::kContextTooLong);
  EXPECT_EQ(refused.status().param(), "text");
  model_.truncates_prompts = true;
  EXPECT_EQ(Prepare(*Generate(R"({"text":"0123456789a"})"), model_)->prompts[0].ids.size(), 10u);
  model_.max_prompt = model_.max_output = 0;
  const std::string text(5000, 'x');
  const auto cut = Prepare(
      *Generate(R"({"text":")" + text + R"(","sampling_params":{"max_new_tokens":50}})"), model_);
  EXPECT_EQ(cut->prompts[0].ids.size(), static_cast<size_t>(testing::kMaxContext - 50));
  EXPECT_EQ(cut->prompts[0].max_new_tokens, 50);
  const auto long_answer = Prepare(
      *Generate(R"({"text":")" + text + R"(","sampling_params":{"max_new_tokens":5000}})"), model_);
  EXPECT_EQ(long_answer->prompts[0].ids.size(), static_cast<size_t>(testing::kMaxContext / 2));
}

TEST_F(RequestParse, AMessageWithoutContentRendersAsAnEmptyOne) {
  const auto null = Chat(R"({"messages":[{"role":"assistant","content":null}]})");
  const auto empty = Chat(R"({"messages":[{"role":"assistant","content":""}]})");
  EXPECT_EQ(Prepare(*null, model_)->prompts[0].ids, Prepare(*empty, model_)->prompts[0].ids);
}

}  // namespace
}  // namespace hayate::api
