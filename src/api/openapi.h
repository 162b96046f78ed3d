#pragma once
// The OpenAPI document of the server: /openapi.json.

#include <span>
#include <string>
#include <string_view>

namespace hayate::api {

struct OpenApiRoute {
  std::string_view method;  // "GET"
  std::string_view path;    // with "{id}" or "{path}" for what varies
  bool needs_key = false;
};

// Every route is listed; those that take a body of a known form say which.
std::string OpenApiDocument(std::span<const OpenApiRoute> routes);

}  // namespace hayate::api
