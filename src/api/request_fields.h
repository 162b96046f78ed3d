#pragma once
// What every surface reads alike from a request's body.

#include "api/field_reader.h"
#include "api/generation_spec.h"
#include "api/served_model.h"

namespace hayate::api {

// Sampling, model, seed, min_tokens, stream, cache_salt, extra_key, priority, deadline_ms and rid.
// Errors stay in `fields`.
void ReadRequestFields(FieldReader& fields, const ServedModel& model, GenerationSpec& spec);

// How the answer divides into thinking, content and calls, by the model's habits and spec.tools.
void ChooseAnswerFormat(const ServedModel& model, GenerationSpec& spec);

}  // namespace hayate::api
