// Scores, rankings and embeddings: requests in, numbers out.

#include <gtest/gtest.h>
#include <simdjson.h>

#include <cmath>

#include "api/embedding_parse.h"
#include "api/field_reader.h"
#include "api/formatter.h"
#include "api/score_parse.h"
#include "api/testing/byte_model.h"

namespace hayate::api {
namespace {

using testing::ByteModel;

class ScoreTest : public ::testing::Test {
 protected:
  template <typename Parser>
  Result<GenerationSpec> Parse(Parser parse, std::string_view json) {
    simdjson::dom::parser parser;
    ASSIGN_OR_RETURN(auto body, ParseBody(parser, json));
    std::vector<std::string> unknown;
    return parse(body, model_, unknown);
  }
  simdjson::dom::element Json(const std::string& text) { return parser_.parse(text).value(); }

  ServedModel model_ = ByteModel();
  simdjson::dom::parser parser_;
};

TEST_F(ScoreTest, QueryAndItemsMakeAPromptEach) {
  const auto texts =
      Parse(ParseScoreRequest, R"({"query":"a","items":["b","c"],"label_token_ids":[1,2]})");
  ASSERT_TRUE(texts.ok()) << texts.status().ToString();
  EXPECT_EQ(std::get<std::string>(texts->prompts[1]), "ac");
  EXPECT_EQ(texts->logprobs.token_ids, (std::vector<TokenId>{1, 2}));
  const auto ids =
      Parse(ParseScoreRequest,
            R"({"query":[5],"items":[[6,7]],"label_token_ids":[1],"item_first":true})");
  EXPECT_EQ(std::get<std::vector<TokenId>>(ids->prompts[0]), (std::vector<TokenId>{6, 7, 5}));
}

TEST_F(ScoreTest, ProbabilitiesAreAmongAllTokensOrAmongTheLabels) {
  auto spec = Parse(ParseScoreRequest, R"({"query":"a","items":["b"],"label_token_ids":[1,2]})");
  for (const bool softmax : {false, true}) {
    spec->scoring->softmax = softmax;
    const auto formatter = MakeScoreFormatter({.spec = &*spec, .model = &model_});
    ChoiceDelta delta;
    delta.logprobs.push_back({.token = 9, .asked = {{1, std::log(0.2f)}, {2, std::log(0.05f)}}});
    formatter->Gather({.index = 0}, delta);
    const auto scores = Json(formatter->Render({{.index = 0}}, {})).at_pointer("/scores/0").value();
    EXPECT_NEAR(double(scores.at(0)), softmax ? 0.8 : 0.2, 1e-6);
    EXPECT_NEAR(double(scores.at(1)), softmax ? 0.2 : 0.05, 1e-6);
  }
}

TEST_F(ScoreTest, NextToImpossibleLabelsStillDiffer) {
  auto spec = Parse(ParseScoreRequest,
                    R"({"query":"a","items":["b"],"label_token_ids":[1,2],"apply_softmax":true})");
  const auto formatter = MakeScoreFormatter({.spec = &*spec, .model = &model_});
  ChoiceDelta delta;
  delta.logprobs.push_back({.token = 9, .asked = {{1, -2000.0f}, {2, -2000.0f - std::log(3.0f)}}});
  formatter->Gather({.index = 0}, delta);
  const auto scores = Json(formatter->Render({{.index = 0}}, {})).at_pointer("/scores/0").value();
  EXPECT_NEAR(double(scores.at(0)), 0.75, 1e-4);
}

TEST_F(ScoreTest, ARankingIsOrderedAndCut) {
  GenerationSpec spec;
  spec.dialect = Dialect::kRerank;
  spec.scoring = Scoring{.softmax = true, .documents = {"x", "y", "z"}, .top_n = 2};
  const auto formatter = MakeScoreFormatter({.spec = &spec, .model = &model_});
  const float yes[] = {0.1f, 0.7f, 0.4f};
  for (size_t i = 0; i < 3; ++i) {
    ChoiceDelta delta;
    delta.logprobs.push_back(
        {.token = 9, .asked = {{1, std::log(yes[i])}, {2, std::log(1.0f - yes[i])}}});
    formatter->Gather({.index = i}, delta);
  }
  const auto ranking =
      Json(formatter->Render({{.index = 0}, {.index = 1}, {.index = 2}}, {})).get_array().value();
  ASSERT_EQ(ranking.size(), 2u);
  EXPECT_EQ(int64_t(ranking.at(0)["index"]), 1);
  EXPECT_EQ(std::string_view(ranking.at(0)["document"]), "y");
  EXPECT_NEAR(double(ranking.at(0)["score"]), 0.7, 1e-6);
  EXPECT_EQ(int64_t(ranking.at(1)["index"]), 2);
}

TEST_F(ScoreTest, AModelWithoutOneTokenForYesIsToldSo) {
  const auto spec = Parse(ParseRerankRequest, R"({"query":"a","documents":["b"]})");
  EXPECT_EQ(spec.status().code(), ErrorCode::kUnsupported);
}

TEST_F(ScoreTest, HiddenStatesBecomeUnitVectors) {
  EXPECT_EQ(Parse(ParseEmbeddingRequest, R"({"input":"a"})").status().code(),
            ErrorCode::kUnsupported);
  model_.embedding_size = 3;
  auto spec = Parse(ParseEmbeddingRequest, R"({"input":[[1,2],"b"],"pooling":"mean"})");
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->prompts.size(), 2u);
  EXPECT_TRUE(spec->logprobs.hidden);
  EXPECT_EQ(spec->logprobs.prompt_start, 0);
  Choice choice(*spec, model_, {.tokens = 2});
  TokenEvent first{.hidden = {2, 0, 12}};
  TokenEvent second{.hidden = {1, 4, 0}};
  choice.Push(first);
  choice.Push(second);
  const ChoiceView view{.index = 0, .choice = &choice};
  const auto whole = Json(MakeEmbeddingFormatter({.spec = &*spec, .model = &model_})
                              ->Render({view}, {.prompt_tokens = 2}))
                         .at_pointer("/data/0/embedding")
                         .value();
  EXPECT_NEAR(double(whole.at(0)), 3.0 / 13, 1e-6);
  EXPECT_NEAR(double(whole.at(2)), 12.0 / 13, 1e-6);
  spec->embedding = EmbeddingFields{.base64 = true, .dimensions = 2};
  // 0.6f and 0.8f, little-endian.
  EXPECT_EQ(std::string_view(
                Json(MakeEmbeddingFormatter({.spec = &*spec, .model = &model_})->Render({view}, {}))
                    .at_pointer("/data/0/embedding")
                    .value()),
            "mpkZP83MTD8=");
}

}  // namespace
}  // namespace hayate::api
