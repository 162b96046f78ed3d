#pragma once
// The sampling fields that all dialects share, by the names that OpenAI's and SGLang's clients use.

#include "api/field_reader.h"
#include "api/generation_spec.h"
#include "api/served_model.h"

namespace hayate::api {

// Reads temperature, top_p, top_k, min_p, penalties, logit_bias, seed, stop, stop_token_ids,
// min_tokens, ignore_eos, no_stop_trim, skip_special_tokens and n into `spec`. Errors stay in
// `fields`.
void ReadSamplingFields(FieldReader& fields, const ServedModel& model, GenerationSpec& spec);

}  // namespace hayate::api
