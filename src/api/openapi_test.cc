#include "api/openapi.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include "api/embedding_parse.h"
#include "api/field_reader.h"
#include "api/messages_parse.h"
#include "api/native_parse.h"
#include "api/ollama_parse.h"
#include "api/openai_parse.h"
#include "api/responses_parse.h"
#include "api/score_parse.h"
#include "api/testing/byte_model.h"

namespace hayate::api {
namespace {

using nlohmann::json;

constexpr OpenApiRoute kRoutes[] = {
    {"POST", "/v1/chat/completions", true},
    {"POST", "/v1/messages", true},
    {"GET", "/v1/responses/{id}", true},
    {"DELETE", "/v1/responses/{id}", true},
    {"GET", "/health", false},
};

TEST(OpenApi, ListsEveryRouteWithItsParametersAndKeys) {
  const json document = json::parse(OpenApiDocument(kRoutes));
  for (const OpenApiRoute& route : kRoutes) {
    std::string method(route.method);
    for (char& c : method) c = static_cast<char>(c | 0x20);
    const json& operation = document["paths"][route.path][method];
    ASSERT_TRUE(operation.is_object()) << route.path;
    EXPECT_EQ(operation["security"].size(), route.needs_key ? 1u : 0u);
  }
  EXPECT_EQ(document["paths"]["/v1/responses/{id}"]["get"]["parameters"][0]["name"], "id");
}

TEST(OpenApi, MethodsOfOnePathAreDescribedEachByItself) {
  const json kept = json::parse(OpenApiDocument(kRoutes))["paths"]["/v1/responses/{id}"];
  const auto answer = [&](const char* method) {
    return kept[method]["responses"]["200"]["content"]["application/json"]["schema"]["$ref"];
  };
  EXPECT_EQ(answer("get"), "#/components/schemas/Response");
  EXPECT_EQ(answer("delete"), "#/components/schemas/Deleted");
}

TEST(OpenApi, WhatMayFollowAPathIsOptional) {
  constexpr OpenApiRoute kTrace[] = {{"GET", "/trace", true}};
  const json parameters =
      json::parse(OpenApiDocument(kTrace))["paths"]["/trace"]["get"]["parameters"];
  ASSERT_EQ(parameters.size(), 1u);
  EXPECT_EQ(parameters[0]["name"], "steps");
  EXPECT_EQ(parameters[0]["in"], "query");
  EXPECT_EQ(parameters[0]["required"], false);
}

TEST(OpenApiDeathTest, ARouteThatIsNotDescribedStopsTheStart) {
  constexpr OpenApiRoute kStranger[] = {{"GET", "/stranger", false}};
  EXPECT_DEATH(OpenApiDocument(kStranger), "/stranger is not described");
}

void CollectReferences(const json& value, std::set<std::string>& references) {
  if (value.is_object() && value.contains("$ref")) {
    references.insert(value["$ref"].get<std::string>());
  }
  for (const json& inner : value) {
    if (inner.is_structured()) CollectReferences(inner, references);
  }
}

TEST(OpenApi, EveryReferenceNamesASchema) {
  const json document = json::parse(OpenApiDocument(kRoutes));
  std::set<std::string> references;
  CollectReferences(document, references);
  EXPECT_GE(references.size(), 4u);
  for (const std::string& reference : references) {
    EXPECT_TRUE(document.contains(json::json_pointer(reference.substr(1)))) << reference;
  }
}

TEST(OpenApi, ErrorsHaveTheShapeOfTheirSurface) {
  const json document = json::parse(OpenApiDocument(kRoutes));
  const auto error = [&](const char* path) {
    return document["paths"][path]["post"]["responses"]["default"]["content"]["application/json"]
                   ["schema"]["$ref"];
  };
  EXPECT_EQ(error("/v1/messages"), "#/components/schemas/AnthropicError");
  EXPECT_EQ(error("/v1/chat/completions"), "#/components/schemas/Error");
}

// The names of a schema's properties, and of those that it is made of.
std::set<std::string> PropertiesOf(const json& schemas, const json& schema) {
  std::set<std::string> names;
  if (schema.contains("properties")) {
    for (const auto& [name, property] : schema["properties"].items()) names.insert(name);
  }
  if (!schema.contains("allOf")) return names;
  for (const json& part : schema["allOf"]) {
    const auto reference = part["$ref"].get<std::string>();
    const json& inner = schemas[reference.substr(reference.rfind('/') + 1)];
    names.merge(PropertiesOf(schemas, inner));
  }
  return names;
}

using Parse = std::function<Result<GenerationSpec>(simdjson::dom::object, const ServedModel&,
                                                   std::vector<std::string>&)>;

TEST(OpenApi, EveryFieldOfARequestIsOneThatIsRead) {
  const ServedModel model = testing::ByteModel();
  const json schemas = json::parse(OpenApiDocument(kRoutes))["components"]["schemas"];
  const auto messages = [](MessagesUse use) {
    return [use](simdjson::dom::object body, const ServedModel& served,
                 std::vector<std::string>& unknown) {
      return ParseMessagesRequest(body, served, use, unknown);
    };
  };
  const auto responses = [](simdjson::dom::object body, const ServedModel& served,
                            std::vector<std::string>& unknown) {
    const auto find = [](std::string_view) -> Result<std::vector<std::string>> {
      return Status(ErrorCode::kNotFound, "none");
    };
    return ParseResponsesRequest(body, served, find, unknown);
  };
  // What a body has to hold stands beside.
  const std::tuple<const char*, Parse, const char*> requests[] = {
      {"ChatRequest", ParseChatRequest, R"({"messages":[{"role":"user","content":"a"}]})"},
      {"CompletionRequest", ParseCompletionRequest, R"({"prompt":"a"})"},
      {"GenerateRequest", ParseGenerateRequest, R"({"text":"a"})"},
      {"ResponsesRequest", responses, R"({"input":"a"})"},
      {"MessagesRequest", messages(MessagesUse::kGenerate),
       R"({"max_tokens":1,"messages":[{"role":"user","content":"a"}]})"},
      {"CountRequest", messages(MessagesUse::kCount),
       R"({"messages":[{"role":"user","content":"a"}]})"},
      {"EmbeddingRequest", ParseEmbeddingRequest, R"({"input":"a"})"},
      {"ScoreRequest", ParseScoreRequest, R"({"query":"a","items":["b"],"label_token_ids":[1]})"},
      {"RerankRequest", ParseRerankRequest, R"({"query":"a","documents":["b"]})"},
      {"OllamaChatRequest", ParseOllamaChat, R"({"messages":[{"role":"user","content":"a"}]})"},
      {"OllamaGenerateRequest", ParseOllamaGenerate, R"({"prompt":"a"})"},
  };
  for (const auto& [name, parse, minimal] : requests) {
    json body = json::parse(minimal);
    for (const std::string& field : PropertiesOf(schemas, schemas[name])) {
      if (!body.contains(field)) body[field] = nullptr;
    }
    EXPECT_GT(body.size(), 4u) << name;
    simdjson::dom::parser parser;
    const std::string text = body.dump();
    std::vector<std::string> unknown;
    (void)parse(ParseBody(parser, text).value(), model, unknown);
    EXPECT_TRUE(unknown.empty()) << name << ": " << unknown.front();
  }
}

}  // namespace
}  // namespace hayate::api
