#pragma once
// The component schemas of the OpenAPI document, as JSON.

#include <string_view>

namespace hayate::api {

// Fields that are accepted without effect or refused are not in it, and further fields are ignored,
// so no schema closes its objects.
std::string_view OpenApiSchemas();

}  // namespace hayate::api
