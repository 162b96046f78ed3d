#pragma once
// A model's chat template: conversation → prompt text.

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/call_shape.h"
#include "text/template/template.h"

namespace hayate::text {

struct ChatMessage {
  std::string role;
  std::string content;
};

// Plain messages as the list of dicts that templates read.
jinja::Value MessagesValue(std::span<const ChatMessage> messages);

enum class ChatEnding {
  kClosed,                // every message is complete
  kGenerationPrompt,      // then the opening of the assistant's next message
  kContinueFinalMessage,  // the last message is left open for the model to go on with
};

struct ChatInput {
  jinja::Value messages;   // list of dicts, as in a request's JSON
  jinja::Value tools;      // list of dicts, or None
  jinja::Value documents;  // list of dicts, or None
  ChatEnding ending = ChatEnding::kGenerationPrompt;
  jinja::Value kwargs;  // dict of further variables (chat_template_kwargs), or None
};

// Variables of the template that come with the tokenizer; one that a model lacks is undefined.
struct SpecialTokenTexts {
  std::optional<std::string> bos_token, eos_token, pad_token, unk_token;
};

// What a template expects as a message's content where a client may send either.
enum class ContentFormat {
  kText,   // one text: the caller joins text parts first
  kParts,  // a list of parts, which the template walks
};

// Immutable; any number of threads may render it at once.
class ChatTemplate {
 public:
  static Result<ChatTemplate> Create(std::string_view source, SpecialTokenTexts tokens);
  // ChatML, for models without a template of their own.
  static ChatTemplate ChatMl(SpecialTokenTexts tokens);

  // The whole prompt, special tokens as text: encode it without adding any. Errors are
  // kInvalidArgument: what the template raises (its message as it is), or what does not fit it.
  Result<std::string> Render(const ChatInput& input,
                             const jinja::RenderOptions& options = {}) const;

  ContentFormat content_format() const { return content_format_; }
  const CallShape& call_shape() const { return call_shape_; }
  const std::string& source() const { return source_; }

 private:
  ChatTemplate(std::string source, jinja::Template compiled, SpecialTokenTexts tokens);

  std::string source_;
  jinja::Template template_;
  SpecialTokenTexts tokens_;
  ContentFormat content_format_;
  CallShape call_shape_;
};

}  // namespace hayate::text
