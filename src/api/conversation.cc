#include "api/conversation.h"

#include <algorithm>
#include <utility>

#include "text/template/json.h"

namespace hayate::api {
namespace {

using text::jinja::Dict;
using text::jinja::Value;

Value TemplateContent(const Message& message, const text::ChatTemplate& wants) {
  if (message.in_parts && wants.content_format() == text::ContentFormat::kParts) {
    std::vector<Value> parts;
    for (const std::string& text : message.texts) {
      parts.push_back(
          Value::FromDict(Dict{{"type", Value::String("text")}, {"text", Value::String(text)}}));
    }
    return Value::List(std::move(parts));
  }
  std::string joined;
  for (const std::string& text : message.texts) joined += text;
  const bool calls_alone = joined.empty() && !message.calls.empty();
  if (calls_alone && wants.call_shape().none_content) return Value::None();
  return Value::String(std::move(joined));
}

Value TemplateArguments(const std::string& arguments, bool wants_object) {
  const bool empty = arguments.find_first_not_of(" \t\r\n") == std::string::npos;
  const std::string json = empty ? "{}" : arguments;
  if (wants_object) {
    Result<Value> value = text::jinja::ParseJson(json);
    if (value.ok() && value->is_dict()) return *std::move(value);
  }
  return Value::String(json);
}

Value TemplateCalls(const std::vector<PastCall>& calls, bool wants_object) {
  std::vector<Value> items;
  for (const PastCall& call : calls) {
    Dict function{{"name", Value::String(call.name)},
                  {"arguments", TemplateArguments(call.arguments, wants_object)}};
    items.push_back(Value::FromDict(Dict{{"id", Value::String(call.id)},
                                         {"type", Value::String("function")},
                                         {"function", Value::FromDict(std::move(function))}}));
  }
  return Value::List(std::move(items));
}

// GPT-OSS' template reads an assistant's earlier reasoning under this name.
bool ReadsThinking(const text::ChatTemplate& wants) {
  const std::string& source = wants.source();
  return source.find("message.thinking") != std::string::npos &&
         source.find("reasoning_content") == std::string::npos;
}

// The template refuses a turn of calls that has both a text and reasoning.
void SetThinking(const Message& message, Dict& item) {
  const Value* reasoning = message.fields.Find("reasoning_content");
  const bool has_text =
      std::ranges::any_of(message.texts, [](const std::string& text) { return !text.empty(); });
  if (reasoning == nullptr || !reasoning->is_string() || reasoning->string().empty()) return;
  if (item.Find("thinking") != nullptr || (has_text && !message.calls.empty())) return;
  item.Set("thinking", *reasoning);
}

}  // namespace

Value TemplateMessages(const std::vector<Message>& messages, const text::ChatTemplate& wants) {
  const bool reads_thinking = ReadsThinking(wants);
  std::vector<Value> items;
  for (const Message& message : messages) {
    Dict item{{"role", Value::String(message.role)}, {"content", TemplateContent(message, wants)}};
    for (const auto& [name, value] : message.fields.entries()) item.Set(name, value);
    if (reads_thinking) SetThinking(message, item);
    if (!message.calls.empty()) {
      item.Set("tool_calls", TemplateCalls(message.calls, wants.call_shape().argument_objects));
    }
    items.push_back(Value::FromDict(std::move(item)));
  }
  return Value::List(std::move(items));
}

Message& ConversationBuilder::Assistant() {
  if (!open_) messages_.push_back({.role = "assistant"});
  open_ = true;
  return messages_.back();
}

void ConversationBuilder::AddText(std::string_view role, std::vector<std::string> texts) {
  if (role == "developer" && !knows_developers_) role = "system";
  // The text of a turn comes before its calls; after them it is the next turn's.
  if (role == "assistant" && open_ && messages_.back().calls.empty()) {
    Message& message = messages_.back();
    for (std::string& text : texts) message.texts.push_back(std::move(text));
    message.in_parts = true;
    return;
  }
  if (role == "system" && !messages_.empty() && messages_.back().role == "system") {
    messages_.back().texts.emplace_back("\n\n");
    for (std::string& text : texts) messages_.back().texts.push_back(std::move(text));
    return;
  }
  const bool in_parts = texts.size() > 1;
  messages_.push_back({.role = std::string(role), .texts = std::move(texts), .in_parts = in_parts});
  open_ = role == "assistant";
}

void ConversationBuilder::AddReasoning(std::string_view text) {
  const bool joins = open_ && messages_.back().texts.empty() && messages_.back().calls.empty();
  if (!joins) open_ = false;
  Message& message = Assistant();
  const Value* before = message.fields.Find("reasoning_content");
  message.fields.Set(
      "reasoning_content",
      Value::String((before != nullptr ? before->string() : "") + std::string(text)));
}

void ConversationBuilder::AddCall(PastCall call) {
  call_names_[call.id] = call.name;
  Assistant().calls.push_back(std::move(call));
}

void ConversationBuilder::AddResult(std::string_view call_id, std::vector<std::string> texts) {
  Message message{.role = "tool"};
  message.in_parts = texts.size() > 1;
  message.texts = std::move(texts);
  message.fields.Set("tool_call_id", Value::String(std::string(call_id)));
  if (const auto call = call_names_.find(std::string(call_id)); call != call_names_.end()) {
    message.fields.Set("name", Value::String(call->second));
  }
  messages_.push_back(std::move(message));
  open_ = false;
}

}  // namespace hayate::api
