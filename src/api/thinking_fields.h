#pragma once
// reasoning_effort, reasoning, thinking_budget and their relatives of a chat request.

#include <optional>
#include <string>

#include "api/field_reader.h"
#include "api/generation_spec.h"
#include "api/served_model.h"

namespace hayate::api {

// What goes to the chat template.
struct ThinkingFields {
  std::optional<bool> enabled;
  std::optional<std::string> effort;  // a level's name, or a number as JSON
};

// Sets the spec's budget and how thinking is told; errors go to fields.status().
ThinkingFields ReadThinkingFields(FieldReader& fields, GenerationSpec& spec);

// The same from Messages: thinking and output_config.effort. Thinking that is not asked for is
// switched off.
ThinkingFields ReadMessagesThinking(FieldReader& fields, GenerationSpec& spec);

// Adds the template's variables; what chat_template_kwargs says stands.
void ApplyThinking(const ThinkingFields& thinking, const ServedModel& model,
                   text::ChatInput& conversation);

}  // namespace hayate::api
