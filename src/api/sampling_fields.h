#pragma once
// The sampling fields that all dialects share, by the names that OpenAI's and SGLang's clients use.

#include <string>
#include <vector>

#include "api/field_reader.h"
#include "api/generation_spec.h"
#include "api/served_model.h"

namespace hayate::api {

// Reads temperature, top_p, top_k, min_p, penalties, logit_bias, seed, stop, stop_regex,
// stop_token_ids, min_tokens, ignore_eos, no_stop_trim, skip_special_tokens and n into `spec`.
// Errors stay in `fields`.
void ReadSamplingFields(FieldReader& fields, const ServedModel& model, GenerationSpec& spec);

// `rid`: what the client calls its requests, for /abort_request. Empty when it gives no names.
std::vector<std::string> ReadRequestIds(FieldReader& fields, size_t max_count);

}  // namespace hayate::api
