#pragma once
// SGLang's /generate → GenerationSpec.

#include <simdjson.h>

#include <string>
#include <vector>

#include "api/generation_spec.h"
#include "api/served_model.h"
#include "base/status.h"

namespace hayate::api {

Result<GenerationSpec> ParseGenerateRequest(simdjson::dom::object body, const ServedModel& model,
                                            std::vector<std::string>& unknown);

}  // namespace hayate::api
