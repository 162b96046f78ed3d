#pragma once
// The conversation that every chat surface (chat completions, Responses, Messages) is turned into,
// and the messages that a chat template makes of it.

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/chat_template.h"
#include "text/template/value.h"

namespace hayate::api {

// A tool call of an earlier turn.
struct PastCall {
  std::string id;
  std::string name;
  // JSON text. What is no object (cut off, say) reaches the template as the text that it is.
  std::string arguments;
};

struct Message {
  std::string role;                // "system", "user", "assistant", "tool", …
  std::vector<std::string> texts;  // joined where the template wants one text
  bool in_parts = false;           // the client sent a list of parts
  std::vector<PastCall> calls;     // an assistant's
  // Further fields as the template sees them: "name", "tool_call_id", "reasoning_content", ….
  text::jinja::Dict fields;
};

inline constexpr size_t kMaxMessages = 65536;

text::jinja::Value TemplateMessages(const std::vector<Message>& messages,
                                    const text::ChatTemplate& wants);

// Joins the pieces of surfaces that keep an assistant's thinking, text and calls apart: what
// belongs to one turn becomes one message.
class ConversationBuilder {
 public:
  // The template outlives the builder.
  explicit ConversationBuilder(const text::ChatTemplate& wants)
      : wants_(wants), knows_developers_(wants.source().find("developer") != std::string::npos) {}

  // A developer speaks as the system where the template knows none; several texts of the system in
  // a row are one message.
  void AddText(std::string_view role, std::vector<std::string> texts);
  // Thinking begins an assistant's turn.
  void AddReasoning(std::string_view text);
  void AddCall(PastCall call);
  // `call_id` names an earlier call; its name goes to the template too.
  void AddResult(std::string_view call_id, std::vector<std::string> texts);
  const std::vector<Message>& messages() const { return messages_; }
  text::jinja::Value ForTemplate() const { return TemplateMessages(messages_, wants_); }

 private:
  Message& Assistant();

  const text::ChatTemplate& wants_;
  const bool knows_developers_;
  std::vector<Message> messages_;
  bool open_ = false;  // the last message is an assistant's, and more of it may come
  std::unordered_map<std::string, std::string> call_names_;  // by id
};

}  // namespace hayate::api
