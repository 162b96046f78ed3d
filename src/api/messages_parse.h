#pragma once
// Anthropic's POST /v1/messages → GenerationSpec.

#include <simdjson.h>

#include <string>
#include <vector>

#include "api/generation_spec.h"
#include "api/served_model.h"
#include "base/status.h"

namespace hayate::api {

// kCount: /v1/messages/count_tokens, which names no max_tokens.
enum class MessagesUse : uint8_t { kGenerate, kCount };

Result<GenerationSpec> ParseMessagesRequest(simdjson::dom::object body, const ServedModel& model,
                                            MessagesUse use, std::vector<std::string>& unknown);

}  // namespace hayate::api
