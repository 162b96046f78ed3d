#pragma once
// OpenAI's request bodies → GenerationSpec. Unknown fields are collected in `unknown`, not refused.

#include <simdjson.h>

#include <string>
#include <vector>

#include "api/generation_spec.h"
#include "api/served_model.h"
#include "base/status.h"

namespace hayate::api {

// POST /v1/chat/completions
Result<GenerationSpec> ParseChatRequest(simdjson::dom::object body, const ServedModel& model,
                                        std::vector<std::string>& unknown);
// POST /v1/completions
Result<GenerationSpec> ParseCompletionRequest(simdjson::dom::object body, const ServedModel& model,
                                              std::vector<std::string>& unknown);

// `messages` (and `tools`, `chat_template_kwargs`, …) of a chat or tokenize request.
Result<text::ChatInput> ReadConversation(class FieldReader& fields, const ServedModel& model);

}  // namespace hayate::api
