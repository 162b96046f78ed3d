#pragma once
// Template and tokenizer: GenerationSpec → token ids. Runs on the text pool; pure.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/generation_spec.h"
#include "api/served_model.h"
#include "base/status.h"
#include "core/request.h"
#include "grammar/compiled_grammar.h"

namespace hayate::api {

struct PreparedPrompt {
  std::vector<TokenId> ids;
  int32_t max_new_tokens = 0;
  text::ThinkingPlace thinking = text::ThinkingPlace::kNone;
};

// A request ready for the engine, but for its grammar, which is compiled elsewhere.
struct PreparedGeneration {
  std::vector<PreparedPrompt> prompts;
  std::optional<grammar::GrammarSource> grammar_source;
  std::shared_ptr<const grammar::CompiledGrammar> grammar;
};

// One entry a prompt. kContextTooLong when a prompt leaves no room for the answer; kInvalidArgument
// for what the template refuses and for prompts without a token.
Result<PreparedGeneration> Prepare(const GenerationSpec& spec, const ServedModel& model);

// The ids of a conversation, for /tokenize.
Result<std::vector<TokenId>> EncodeConversation(const text::ChatInput& input,
                                                const ServedModel& model);

}  // namespace hayate::api
