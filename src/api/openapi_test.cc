#include "api/openapi.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

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

}  // namespace
}  // namespace hayate::api
