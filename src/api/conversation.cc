// The conversation of a chat request: messages as the template wants them.

#include "api/field_reader.h"
#include "api/openai_parse.h"
#include "base/error.h"
#include "text/template/json.h"

namespace hayate::api {
namespace {

using simdjson::dom::element;
using text::jinja::Dict;
using text::jinja::Value;

constexpr size_t kMaxMessages = 65536;

// Content parts → one text. Text parts are joined; other kinds are refused by name.
Result<std::string> JoinTextParts(simdjson::dom::array parts, const std::string& where) {
  if (parts.size() == 0) return InvalidField(where, "must hold at least one part");
  std::string joined;
  size_t index = 0;
  for (const element part : parts) {
    const std::string at = where + "[" + std::to_string(index++) + "]";
    std::string_view text;
    if (part.get(text) == simdjson::SUCCESS) {
      joined += text;
      continue;
    }
    simdjson::dom::object object;
    std::string_view type;
    if (part.get(object) != simdjson::SUCCESS || object["type"].get(type) != simdjson::SUCCESS) {
      return InvalidField(at, "must be an object with a type");
    }
    if (type != "text") {
      return InvalidField(at + ".type", "'{}' is not supported: this model takes text only",
                          Shown(type));
    }
    if (object["text"].get(text) != simdjson::SUCCESS) {
      return InvalidField(at + ".text", "must be a string");
    }
    joined += text;
  }
  return joined;
}

// Clients send a call's arguments as JSON text; the template wants that or the object. What is no
// object (cut off in an earlier turn, say) passes through as the text that it is.
Result<Value> ReadArguments(element arguments, bool wants_object) {
  std::string_view text;
  const bool is_text = arguments.get(text) == simdjson::SUCCESS;
  if (is_text && text.find_first_not_of(" \t\r\n") == std::string_view::npos) text = "{}";
  const std::string json = is_text ? std::string(text) : std::string(simdjson::minify(arguments));
  if (wants_object) {
    Result<Value> value = text::jinja::ParseJson(json);
    if (value.ok() && value->is_dict()) return value;
  }
  return Value::String(json);
}

// The calls of an earlier turn, each {"id", "type", "function": {"name", "arguments"}}.
Result<Value> ReadToolCalls(element calls, const std::string& where, bool wants_object) {
  simdjson::dom::array array;
  if (calls.is_null()) return Value::List({});
  if (calls.get(array) != simdjson::SUCCESS) return InvalidField(where, "must be a list");
  std::vector<Value> items;
  for (const element item : array) {
    const std::string at = where + "[" + std::to_string(items.size()) + "]";
    simdjson::dom::object call, function;
    std::string_view name;
    if (item.get(call) != simdjson::SUCCESS) return InvalidField(at, "must be an object");
    if (call["function"].get(function) != simdjson::SUCCESS ||
        function["name"].get(name) != simdjson::SUCCESS) {
      return InvalidField(at + ".function", "must be an object with a name");
    }
    ASSIGN_OR_RETURN(const Value whole, text::jinja::ParseJson(simdjson::minify(item)));
    Dict inner;
    for (const auto field : function) {
      if (field.key == "arguments" && !field.value.is_null()) {
        ASSIGN_OR_RETURN(Value arguments, ReadArguments(field.value, wants_object));
        inner.Set("arguments", std::move(arguments));
      } else {
        ASSIGN_OR_RETURN(Value value, text::jinja::ParseJson(simdjson::minify(field.value)));
        inner.Set(std::string(field.key), std::move(value));
      }
    }
    Dict outer = whole.dict();
    outer.Set("function", Value::FromDict(std::move(inner)));
    items.push_back(Value::FromDict(std::move(outer)));
  }
  return Value::List(std::move(items));
}

// One message as the template sees it: the fields as they came, `content` normalised.
Result<Value> ReadMessage(const element& item, const std::string& where,
                          const text::ChatTemplate& wants) {
  simdjson::dom::object object;
  if (item.get(object) != simdjson::SUCCESS) return InvalidField(where, "must be an object");
  std::string_view role;
  if (object["role"].get(role) != simdjson::SUCCESS || role.empty()) {
    return InvalidField(where + ".role", "must be a string such as user, assistant or system");
  }
  Dict message;
  for (const auto field : object) {
    const std::string name(field.key);
    if (name == "tool_calls") {
      ASSIGN_OR_RETURN(Value calls, ReadToolCalls(field.value, where + ".tool_calls",
                                                  wants.takes_argument_objects()));
      if (!calls.sequence().items.empty()) message.Set(name, std::move(calls));
      continue;
    }
    if (name != "content") {
      ASSIGN_OR_RETURN(Value value, text::jinja::ParseJson(simdjson::minify(field.value)));
      message.Set(name, std::move(value));
      continue;
    }
    std::string_view text;
    simdjson::dom::array parts;
    if (field.value.is_null()) {
      // A turn of tool calls without a text. Most templates add strings and cannot add none.
      message.Set(name, Value::String(""));
    } else if (field.value.get(text) == simdjson::SUCCESS) {
      message.Set(name, Value::String(std::string(text)));
    } else if (field.value.get(parts) == simdjson::SUCCESS) {
      ASSIGN_OR_RETURN(std::string joined, JoinTextParts(parts, where + ".content"));
      if (wants.content_format() == text::ContentFormat::kText) {
        message.Set(name, Value::String(std::move(joined)));
      } else {
        ASSIGN_OR_RETURN(Value value, text::jinja::ParseJson(simdjson::minify(field.value)));
        message.Set(name, std::move(value));
      }
    } else {
      return InvalidField(where + ".content", "must be a string or a list of parts");
    }
  }
  const bool has_calls = object["tool_calls"].error() == simdjson::SUCCESS;
  if (object["content"].error() != simdjson::SUCCESS) {
    if (role != "assistant" && !has_calls) return InvalidField(where + ".content", "is missing");
    message.Set("content", Value::String(""));
  }
  return Value::FromDict(std::move(message));
}

Result<Value> ReadMessages(simdjson::dom::array messages, const text::ChatTemplate& wants) {
  std::vector<Value> items;
  for (const element item : messages) {
    if (items.size() == kMaxMessages) {
      return InvalidField("messages", "holds more than {} messages", kMaxMessages);
    }
    const std::string where = "messages[" + std::to_string(items.size()) + "]";
    ASSIGN_OR_RETURN(Value message, ReadMessage(item, where, wants));
    items.push_back(std::move(message));
  }
  if (items.empty()) return InvalidField("messages", "must hold at least one message");
  return Value::List(std::move(items));
}

}  // namespace

Result<text::ChatInput> ReadConversation(FieldReader& fields, const ServedModel& model) {
  text::ChatInput input;
  const auto messages = fields.Array("messages");
  RETURN_IF_ERROR(fields.status());
  if (!messages) return InvalidField("messages", "is missing");
  ASSIGN_OR_RETURN(input.messages, ReadMessages(*messages, *model.chat_template));
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
