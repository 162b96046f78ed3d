#include "api/prepare.h"

#include <algorithm>
#include <utility>

#include "api/answer_grammar.h"
#include "base/error.h"

namespace hayate::api {
namespace {

// What the dialect calls the field that held the prompt.
std::string FieldOf(const PromptSource& source, Dialect dialect) {
  switch (dialect) {
    case Dialect::kChat:
    case Dialect::kMessages:
    case Dialect::kOllamaChat:
      return "messages";
    case Dialect::kResponses:
    case Dialect::kEmbedding:
      return "input";
    case Dialect::kCompletion:
    case Dialect::kOllamaGenerate:
      return "prompt";
    case Dialect::kScore:
      return "items";
    case Dialect::kRerank:
      return "documents";
    case Dialect::kGenerate:
      break;
  }
  return std::holds_alternative<std::string>(source) ? "text" : "input_ids";
}

// Megabytes that cannot fit are not tokenised to find out.
Status CheckCanFit(std::string_view text, const ServedModel& model) {
  if (model.truncates_prompts) return OkStatus();
  const size_t least = model.tokenizer->MinIds(text);
  if (least <= static_cast<size_t>(model.max_context)) return OkStatus();
  return Error(ErrorCode::kContextTooLong,
               "the prompt has {} bytes, at least {} tokens; this model's context is {} tokens",
               text.size(), least, model.max_context);
}

// The request's variables of the template come before the operator's.
Result<std::string> Render(const text::ChatInput& input, const ServedModel& model) {
  if (!model.template_kwargs.is_dict()) return model.chat_template->Render(input);
  text::jinja::Dict variables = model.template_kwargs.dict();
  if (input.kwargs.is_dict()) {
    for (const auto& [name, value] : input.kwargs.dict().entries()) variables.Set(name, value);
  }
  text::ChatInput filled = input;
  filled.kwargs = text::jinja::Value::FromDict(std::move(variables));
  return model.chat_template->Render(filled);
}

// The template writes the special tokens itself.
Result<std::vector<TokenId>> EncodeRendered(const std::string& prompt, const ServedModel& model) {
  return model.tokenizer->Encode(prompt, {.add_bos_eos = text::AddBosEos::kNo});
}

Result<PreparedPrompt> EncodePrompt(const PromptSource& source, const GenerationSpec& spec,
                                    const ServedModel& model) {
  PreparedPrompt prompt;
  if (const auto* ids = std::get_if<std::vector<TokenId>>(&source)) {
    prompt.ids = *ids;
    return prompt;
  }
  if (const auto* text = std::get_if<std::string>(&source)) {
    RETURN_IF_ERROR(CheckCanFit(*text, model));
    ASSIGN_OR_RETURN(prompt.ids, model.tokenizer->Encode(*text));
    return prompt;
  }
  ASSIGN_OR_RETURN(const std::string rendered, Render(std::get<text::ChatInput>(source), model));
  if (spec.format.reasoning != nullptr) {
    prompt.thinking = text::PlaceOfThinking(*spec.format.reasoning, rendered);
  }
  RETURN_IF_ERROR(CheckCanFit(rendered, model));
  ASSIGN_OR_RETURN(prompt.ids, EncodeRendered(rendered, model));
  return prompt;
}

// The turn's own tokens go on from the session's: they do not begin a text.
void PrependSession(const GenerationSpec& spec, const ServedModel& model,
                    std::vector<TokenId>& ids) {
  const std::vector<TokenId>& prefix = spec.session_prefix;
  if (prefix.empty()) return;
  if (!ids.empty() && ids.front() == model.tokenizer->bos_id()) ids.erase(ids.begin());
  ids.insert(ids.begin(), prefix.begin(), prefix.end());
}

// Holds a prompt against the operator's bounds. Where prompts are cut, their beginning stays, and
// what is wanted of the answer fits behind it, up to half of the context.
Status BoundPrompt(std::optional<int64_t> wanted, const std::string& field,
                   const ServedModel& model, std::vector<TokenId>& ids) {
  const auto length = static_cast<int64_t>(ids.size());
  const int64_t answer =
      std::clamp<int64_t>(wanted.value_or(1), 1, std::max(model.max_context / 2, 1));
  const int64_t room = model.max_context - answer;
  const int64_t most = model.max_prompt > 0 ? std::min<int64_t>(model.max_prompt, room) : room;
  if (model.truncates_prompts && length > most) {
    ids.resize(static_cast<size_t>(most));
    return OkStatus();
  }
  if (model.max_prompt == 0 || length <= model.max_prompt) return OkStatus();
  return Error(ErrorCode::kContextTooLong, "the prompt has {} tokens, this server takes {}", length,
               model.max_prompt)
      .WithParam(field);
}

}  // namespace

Result<std::vector<TokenId>> EncodeConversation(const text::ChatInput& input,
                                                const ServedModel& model) {
  ASSIGN_OR_RETURN(const std::string prompt, Render(input, model));
  return EncodeRendered(prompt, model);
}

Result<PreparedGeneration> Prepare(const GenerationSpec& spec, const ServedModel& model) {
  PreparedGeneration prepared;
  prepared.prompts.reserve(spec.prompts.size());
  for (const PromptSource& source : spec.prompts) {
    const std::string field = FieldOf(source, spec.dialect);
    Result<PreparedPrompt> encoded = EncodePrompt(source, spec, model);
    if (encoded.status().code() == ErrorCode::kContextTooLong) {
      return Status(encoded.status()).WithParam(field);
    }
    ASSIGN_OR_RETURN(PreparedPrompt prompt, std::move(encoded));
    if (spec.session) PrependSession(spec, model, prompt.ids);
    if (prompt.ids.empty()) return InvalidField(field, "holds no token");
    const std::optional<int64_t> wanted = spec.OfPrompt(prepared.prompts.size()).max_new_tokens;
    RETURN_IF_ERROR(BoundPrompt(wanted, field, model, prompt.ids));
    const auto length = static_cast<int64_t>(prompt.ids.size());
    const int64_t room = model.max_context - length;
    const bool scores_only = wanted == 0;
    if (room < (scores_only ? 0 : 1)) {
      return Error(ErrorCode::kContextTooLong,
                   "the prompt has {} tokens, this model's context is {} tokens", length,
                   model.max_context)
          .WithParam(field);
    }
    const int64_t most = model.max_output > 0 ? std::min<int64_t>(room, model.max_output) : room;
    prompt.max_new_tokens = static_cast<int32_t>(std::min(wanted.value_or(most), most));
    prepared.prompts.push_back(std::move(prompt));
  }
  // Only a chat has thinking, and a chat is one prompt.
  prepared.grammar_source = AnswerGrammar(spec, prepared.prompts.front().thinking);
  return prepared;
}

}  // namespace hayate::api
