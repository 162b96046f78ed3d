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

// Every route with what it takes and gives. A route that the tables behind this do not know is a
// broken invariant: a server with one does not start.
std::string OpenApiDocument(std::span<const OpenApiRoute> routes);

}  // namespace hayate::api
