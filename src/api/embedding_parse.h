#pragma once
// /v1/embeddings → GenerationSpec: a prompt an input, of which the final hidden states are wanted.

#include <simdjson.h>

#include <string>
#include <vector>

#include "api/generation_spec.h"
#include "api/served_model.h"
#include "base/status.h"

namespace hayate::api {

// {"input", "encoding_format", "dimensions", "pooling"}. kUnsupported for a model that gives no
// hidden states.
Result<GenerationSpec> ParseEmbeddingRequest(simdjson::dom::object body, const ServedModel& model,
                                             std::vector<std::string>& unknown);

}  // namespace hayate::api
