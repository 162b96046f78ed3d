#include "text/chat_template.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/template/code_points.h"

namespace hayate::text {
namespace {

using jinja::Dict;
using jinja::Value;

constexpr std::string_view kChatMl =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\\n' + (message.content or '') + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

constexpr std::array<std::string_view, 4> kReservedNames = {"messages", "tools", "documents",
                                                            "add_generation_prompt"};

Result<Dict> BuildContext(const ChatInput& input, const SpecialTokenTexts& tokens) {
  Dict context;
  const std::pair<const char*, const std::optional<std::string>*> specials[] = {
      {"bos_token", &tokens.bos_token},
      {"eos_token", &tokens.eos_token},
      {"pad_token", &tokens.pad_token},
      {"unk_token", &tokens.unk_token}};
  for (const auto& [name, text] : specials) {
    if (*text) context.Set(name, Value::String(**text));
  }
  if (input.kwargs.is_dict()) {
    for (const auto& [key, value] : input.kwargs.dict().entries()) {
      const bool reserved = key.is_string() &&
                            std::find(kReservedNames.begin(), kReservedNames.end(), key.string()) !=
                                kReservedNames.end();
      if (reserved) {
        return InvalidField("chat_template_kwargs", "'{}' is set by the request's own fields",
                            key.string());
      }
      context.Set(key, value);
    }
  } else if (!input.kwargs.is_none()) {
    return InvalidField("chat_template_kwargs", "must be an object");
  }
  context.Set("messages", input.messages);
  context.Set("tools", input.tools);
  context.Set("documents", input.documents);
  context.Set("add_generation_prompt", Value::Bool(input.ending == ChatEnding::kGenerationPrompt));
  return context;
}

// The text of the last message, or of its last text part.
Result<std::string> FinalText(const Value& messages) {
  const std::vector<Value>& list = messages.sequence().items;
  const Value* content = list.empty() || !list.back().is_dict()
                             ? nullptr
                             : list.back().dict().Find(std::string_view("content"));
  if (content != nullptr && content->is_sequence()) {
    const std::vector<Value>& parts = content->sequence().items;
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      const Value* text = part->is_dict() ? part->dict().Find(std::string_view("text")) : nullptr;
      if (text != nullptr) {
        content = text;
        break;
      }
    }
  }
  if (content != nullptr && content->is_string()) return content->string();
  return InvalidField("messages", "the final message has no text to continue");
}

// Cuts the prompt after the last message's text; a template may have trimmed the text.
Result<std::string> CutAfterFinalText(std::string prompt, const std::string& text) {
  const std::string_view from_start = jinja::StripLeft(text);
  const std::string_view trimmed = jinja::StripRight(from_start);
  const size_t begin = prompt.rfind(trimmed);
  if (begin == std::string::npos) {
    return InvalidField("messages",
                        "the template changes the final message, it cannot be continued");
  }
  const bool kept_end = std::string_view(prompt).substr(begin).starts_with(from_start);
  prompt.resize(begin + (kept_end ? from_start : trimmed).size());
  return prompt;
}

}  // namespace

Value MessagesValue(std::span<const ChatMessage> messages) {
  std::vector<Value> list;
  for (const ChatMessage& message : messages) {
    list.push_back(Value::FromDict(
        Dict{{"role", Value::String(message.role)}, {"content", Value::String(message.content)}}));
  }
  return Value::List(std::move(list));
}

ChatTemplate::ChatTemplate(std::string source, jinja::Template compiled, SpecialTokenTexts tokens)
    : source_(std::move(source)),
      template_(std::move(compiled)),
      tokens_(std::move(tokens)),
      content_format_(template_.LoopsOver("content") ? ContentFormat::kParts
                                                     : ContentFormat::kText) {
  call_shape_ = FindCallShape(*this);
}

Result<ChatTemplate> ChatTemplate::Create(std::string_view source, SpecialTokenTexts tokens) {
  Result<jinja::Template> compiled = jinja::Template::Compile(source);
  if (!compiled.ok()) return compiled.status().Under("chat template");
  return ChatTemplate(std::string(source), std::move(compiled).value(), std::move(tokens));
}

ChatTemplate ChatTemplate::ChatMl(SpecialTokenTexts tokens) {
  return Create(kChatMl, std::move(tokens)).value();
}

Result<std::string> ChatTemplate::Render(const ChatInput& input,
                                         const jinja::RenderOptions& options) const {
  if (!input.messages.is_sequence()) return InvalidField("messages", "must be a list");
  ASSIGN_OR_RETURN(const Dict context, BuildContext(input, tokens_));
  Result<std::string> prompt = template_.Render(context, options);
  if (!prompt.ok()) return Status(prompt.status()).WithParam("messages");
  if (input.ending != ChatEnding::kContinueFinalMessage) return prompt;
  ASSIGN_OR_RETURN(const std::string text, FinalText(input.messages));
  return CutAfterFinalText(std::move(prompt).value(), text);
}

}  // namespace hayate::text
