#pragma once
// /v1/score and /v1/rerank → GenerationSpec: a prompt an item, of which the log-probabilities of a
// few tokens at its end are wanted.

#include <simdjson.h>

#include <string>
#include <vector>

#include "api/generation_spec.h"
#include "api/served_model.h"
#include "base/status.h"

namespace hayate::api {

// POST /v1/score: {"query", "items", "label_token_ids", "apply_softmax", "item_first"}
Result<GenerationSpec> ParseScoreRequest(simdjson::dom::object body, const ServedModel& model,
                                         std::vector<std::string>& unknown);
// POST /v1/rerank: {"query", "documents", "instruct", "top_n", "return_documents"}. The model
// answers yes or no to each document.
Result<GenerationSpec> ParseRerankRequest(simdjson::dom::object body, const ServedModel& model,
                                          std::vector<std::string>& unknown);

}  // namespace hayate::api
