#include "api/prepare.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace hayate::api {
namespace {

// What the dialect calls the field that held the prompt.
std::string FieldOf(const PromptSource& source, Dialect dialect) {
  if (dialect == Dialect::kChat) return "messages";
  if (dialect == Dialect::kCompletion) return "prompt";
  return std::holds_alternative<std::string>(source) ? "text" : "input_ids";
}

Result<std::vector<TokenId>> EncodePrompt(const PromptSource& source, const ServedModel& model) {
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&source)) return *ids;
  if (const auto* text = std::get_if<std::string>(&source)) {
    return model.tokenizer->Encode(*text);
  }
  return EncodeConversation(std::get<text::ChatInput>(source), model);
}

}  // namespace

Result<std::vector<TokenId>> EncodeConversation(const text::ChatInput& input,
                                                const ServedModel& model) {
  ASSIGN_OR_RETURN(const std::string prompt, model.chat_template->Render(input));
  // The template writes the special tokens itself.
  return model.tokenizer->Encode(prompt, {.add_bos_eos = text::AddBosEos::kNo});
}

Result<std::vector<PreparedPrompt>> Prepare(const GenerationSpec& spec, const ServedModel& model) {
  std::vector<PreparedPrompt> prepared;
  prepared.reserve(spec.prompts.size());
  for (const PromptSource& source : spec.prompts) {
    const std::string field = FieldOf(source, spec.dialect);
    PreparedPrompt prompt;
    ASSIGN_OR_RETURN(prompt.ids, EncodePrompt(source, model));
    if (prompt.ids.empty()) return InvalidField(field, "holds no token");
    const auto length = static_cast<int64_t>(prompt.ids.size());
    const int64_t room = model.max_context - length;
    const bool scores_only = spec.max_new_tokens == 0;
    if (room < (scores_only ? 0 : 1)) {
      return Error(ErrorCode::kContextTooLong,
                   "the prompt has {} tokens, this model's context is {} tokens", length,
                   model.max_context)
          .WithParam(field);
    }
    prompt.max_new_tokens =
        static_cast<int32_t>(std::min(spec.max_new_tokens.value_or(room), room));
    prepared.push_back(std::move(prompt));
  }
  return prepared;
}

}  // namespace hayate::api
