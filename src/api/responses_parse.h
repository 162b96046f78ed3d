#pragma once
// POST /v1/responses → GenerationSpec.

#include <simdjson.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "api/generation_spec.h"
#include "api/served_model.h"
#include "base/status.h"

namespace hayate::api {

// The items of an earlier response's conversation, its answer included; an error where there is
// none of that id.
using FindConversation = std::function<Result<std::vector<std::string>>(std::string_view id)>;

Result<GenerationSpec> ParseResponsesRequest(simdjson::dom::object body, const ServedModel& model,
                                             const FindConversation& find_conversation,
                                             std::vector<std::string>& unknown);

}  // namespace hayate::api
