#pragma once
// The one grammar of an answer, made of all that asks for one: the response format, demanded or
// strict tool calls, and the thinking that comes before either and may have a budget.

#include <optional>

#include "api/generation_spec.h"
#include "base/status.h"
#include "grammar/grammar_source.h"

namespace hayate::api {

// Nothing when the answer is free.
std::optional<grammar::GrammarSource> AnswerGrammar(const GenerationSpec& spec,
                                                    text::ThinkingPlace thinking);

}  // namespace hayate::api
