// The conversation of a chat request.

#include "api/conversation.h"
#include "api/field_reader.h"
#include "api/openai_parse.h"
#include "api/text_parts.h"
#include "base/error.h"
#include "text/template/json.h"

namespace hayate::api {
namespace {

using simdjson::dom::element;
using text::jinja::Value;

constexpr std::string_view kPartTypes[] = {"text"};

// The calls of an earlier turn, each {"id", "type", "function": {"name", "arguments"}}. Clients
// send arguments as JSON text or as the object.
Result<std::vector<PastCall>> ReadPastCalls(element list, const std::string& where) {
  simdjson::dom::array array;
  std::vector<PastCall> calls;
  if (list.is_null()) return calls;
  if (list.get(array) != simdjson::SUCCESS) return InvalidField(where, "must be a list");
  for (const element item : array) {
    const std::string at = where + "[" + std::to_string(calls.size()) + "]";
    simdjson::dom::object call, function;
    std::string_view name, id, text;
    if (item.get(call) != simdjson::SUCCESS) return InvalidField(at, "must be an object");
    if (call["function"].get(function) != simdjson::SUCCESS ||
        function["name"].get(name) != simdjson::SUCCESS) {
      return InvalidField(at + ".function", "must be an object with a name");
    }
    if (call["id"].get(id) != simdjson::SUCCESS) id = "";
    element arguments;
    std::string json;
    if (function["arguments"].get(arguments) == simdjson::SUCCESS && !arguments.is_null()) {
      const bool is_text = arguments.get(text) == simdjson::SUCCESS;
      json = is_text ? std::string(text) : std::string(simdjson::minify(arguments));
    }
    calls.push_back({std::string(id), std::string(name), std::move(json)});
  }
  return calls;
}

Result<Message> ReadMessage(const element& item, const std::string& where) {
  simdjson::dom::object object;
  if (item.get(object) != simdjson::SUCCESS) return InvalidField(where, "must be an object");
  std::string_view role;
  if (object["role"].get(role) != simdjson::SUCCESS || role.empty()) {
    return InvalidField(where + ".role", "must be a string such as user, assistant or system");
  }
  Message message{.role = std::string(role)};
  bool has_calls = false, has_content = false;
  for (const auto field : object) {
    if (field.key == "tool_calls") {
      has_calls = true;
      ASSIGN_OR_RETURN(message.calls, ReadPastCalls(field.value, where + ".tool_calls"));
    } else if (field.key == "content") {
      has_content = true;
      if (field.value.is_null()) continue;
      ASSIGN_OR_RETURN(message.texts, ReadTexts(field.value, where + ".content", kPartTypes));
      message.in_parts = field.value.is_array();
    } else if (field.key != "role") {
      ASSIGN_OR_RETURN(Value value, text::jinja::ParseJson(simdjson::minify(field.value)));
      message.fields.Set(std::string(field.key), std::move(value));
    }
  }
  if (!has_content && role != "assistant" && !has_calls) {
    return InvalidField(where + ".content", "is missing");
  }
  return message;
}

Result<std::vector<Message>> ReadMessages(simdjson::dom::array list) {
  std::vector<Message> messages;
  for (const element item : list) {
    if (messages.size() == kMaxMessages) {
      return InvalidField("messages", "holds more than {} messages", kMaxMessages);
    }
    const std::string where = "messages[" + std::to_string(messages.size()) + "]";
    ASSIGN_OR_RETURN(Message message, ReadMessage(item, where));
    messages.push_back(std::move(message));
  }
  if (messages.empty()) return InvalidField("messages", "must hold at least one message");
  return messages;
}

}  // namespace

Result<text::ChatInput> ReadConversation(FieldReader& fields, const ServedModel& model) {
  text::ChatInput input;
  const auto messages = fields.Array("messages");
  RETURN_IF_ERROR(fields.status());
  if (!messages) return InvalidField("messages", "is missing");
  ASSIGN_OR_RETURN(const auto read, ReadMessages(*messages));
  input.messages = TemplateMessages(read, *model.chat_template);
  if (const auto tools = fields.Array("tools"); tools && tools->size() > 0) {
    ASSIGN_OR_RETURN(input.tools, text::jinja::ParseJson(simdjson::minify(*tools)));
  }
  if (const auto documents = fields.Array("documents")) {
    ASSIGN_OR_RETURN(input.documents, text::jinja::ParseJson(simdjson::minify(*documents)));
  }
  if (const auto kwargs = fields.Object("chat_template_kwargs")) {
    ASSIGN_OR_RETURN(input.kwargs, text::jinja::ParseJson(simdjson::minify(*kwargs)));
  }
  const bool continues = fields.Bool("continue_final_message").value_or(false);
  const bool generates = fields.Bool("add_generation_prompt").value_or(!continues);
  if (continues && generates) {
    fields.Fail("continue_final_message", "excludes add_generation_prompt");
  }
  input.ending = continues   ? text::ChatEnding::kContinueFinalMessage
                 : generates ? text::ChatEnding::kGenerationPrompt
                             : text::ChatEnding::kClosed;
  RETURN_IF_ERROR(fields.status());
  return input;
}

}  // namespace hayate::api
