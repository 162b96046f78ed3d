#pragma once
// Ollama's request bodies → GenerationSpec.

#include <simdjson.h>

#include <string>
#include <vector>

#include "api/generation_spec.h"
#include "api/served_model.h"
#include "base/status.h"

namespace hayate::api {

// POST /api/chat
Result<GenerationSpec> ParseOllamaChat(simdjson::dom::object body, const ServedModel& model,
                                       std::vector<std::string>& unknown);
// POST /api/generate
Result<GenerationSpec> ParseOllamaGenerate(simdjson::dom::object body, const ServedModel& model,
                                           std::vector<std::string>& unknown);

// Clients add a tag to a model's name; here it has none.
std::string_view WithoutTag(std::string_view model);

}  // namespace hayate::api
