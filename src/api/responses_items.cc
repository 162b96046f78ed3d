#include "api/responses_items.h"

#include <algorithm>

#include "api/field_reader.h"
#include "api/text_parts.h"
#include "base/error.h"
#include "base/json_writer.h"

namespace hayate::api {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::string_view kTextTypes[] = {"input_text", "output_text", "text", "refusal"};
constexpr std::string_view kReasoningTypes[] = {"reasoning_text", "summary_text", "text"};

// An id that stands in JSON as it is; another one counts as none.
bool IsPlain(std::string_view id) {
  return !id.empty() && std::all_of(id.begin(), id.end(), [](char c) {
    return c > ' ' && c < '\x7f' && c != '"' && c != '\\';
  });
}

// A message in the form that lists of items have: its content as parts.
std::string MessageItem(std::string_view id, std::string_view role,
                        const std::vector<std::string>& texts) {
  const bool output = role == "assistant";
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  if (IsPlain(id)) json.Field("id", id);
  json.Field("type", "message");
  json.Field("role", role);
  json.Field("status", "completed");
  json.Key("content");
  json.BeginArray();
  for (const std::string& text : texts) {
    json.BeginObject();
    json.Field("type", output ? "output_text" : "input_text");
    json.Field("text", text);
    if (output) {
      json.Key("annotations");
      json.Raw("[]");
    }
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
  return out;
}

// Any other item as it came, its id in front.
std::string PlainItem(object item) {
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  std::string_view id;
  if (item["id"].get(id) == simdjson::SUCCESS && IsPlain(id)) json.Field("id", id);
  for (const auto field : item) {
    if (field.key == "id") continue;
    json.Key(field.key);
    json.Raw(simdjson::minify(field.value));
  }
  json.EndObject();
  return out;
}

class ItemReader {
 public:
  ItemReader(ConversationBuilder& conversation, std::vector<std::string>& items)
      : conversation_(conversation), items_(items) {}

  Status Read(element item, const std::string& where) {
    object fields;
    std::string_view type;
    if (item.get(fields) != simdjson::SUCCESS) return InvalidField(where, "must be an object");
    if (fields["type"].get(type) != simdjson::SUCCESS) type = "message";
    FieldReader reader(fields, where + ".");
    if (type == "message") return ReadMessage(reader, fields, where);
    if (type == "function_call") {
      RETURN_IF_ERROR(ReadCall(reader, where));
    } else if (type == "function_call_output") {
      RETURN_IF_ERROR(ReadResult(reader, where));
    } else if (type == "reasoning") {
      RETURN_IF_ERROR(ReadReasoning(reader, where));
    } else {
      return InvalidField(where + ".type",
                          "'{}' is none of message, function_call, function_call_output, reasoning",
                          Shown(type));
    }
    items_.push_back(PlainItem(fields));
    return OkStatus();
  }

 private:
  Status ReadMessage(FieldReader& reader, object fields, const std::string& where) {
    const std::string_view role = reader.String("role").value_or("");
    const std::string_view id = reader.String("id").value_or("");
    RETURN_IF_ERROR(reader.status());
    if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
      return InvalidField(where + ".role", "'{}' is none of user, assistant, system, developer",
                          Shown(role));
    }
    element content;
    if (fields["content"].get(content) != simdjson::SUCCESS) {
      return InvalidField(where + ".content", "is missing");
    }
    ASSIGN_OR_RETURN(auto texts, ReadTexts(content, where + ".content", kTextTypes));
    items_.push_back(MessageItem(id, role, texts));
    conversation_.AddText(role, std::move(texts));
    return OkStatus();
  }

  Status ReadCall(FieldReader& reader, const std::string& where) {
    const auto id = reader.String("call_id");
    const auto name = reader.String("name");
    const auto arguments = reader.String("arguments");
    RETURN_IF_ERROR(reader.status());
    if (!id || !name) return InvalidField(where, "needs call_id and name");
    conversation_.AddCall(
        {std::string(*id), std::string(*name), std::string(arguments.value_or(""))});
    return OkStatus();
  }

  Status ReadResult(FieldReader& reader, const std::string& where) {
    const auto id = reader.String("call_id");
    const auto output = reader.Any("output");
    RETURN_IF_ERROR(reader.status());
    if (!id || !output) return InvalidField(where, "needs call_id and output");
    ASSIGN_OR_RETURN(auto texts, ReadTexts(*output, where + ".output", kTextTypes));
    conversation_.AddResult(*id, std::move(texts));
    return OkStatus();
  }

  // Its own text, or the summary that stands for it.
  Status ReadReasoning(FieldReader& reader, const std::string& where) {
    std::vector<std::string> texts;
    for (const char* name : {"content", "summary"}) {
      const auto parts = reader.Any(name);
      simdjson::dom::array list;
      if (!parts || !texts.empty()) continue;
      if (parts->get(list) != simdjson::SUCCESS) {
        return InvalidField(where + "." + name, "must be a list");
      }
      if (list.size() == 0) continue;
      ASSIGN_OR_RETURN(texts, ReadTexts(*parts, where + "." + name, kReasoningTypes));
    }
    std::string joined;
    for (const std::string& text : texts) joined += text;
    if (!joined.empty()) conversation_.AddReasoning(joined);
    return OkStatus();
  }

  ConversationBuilder& conversation_;
  std::vector<std::string>& items_;
};

}  // namespace

Status ReadResponsesItems(element input, const std::string& where,
                          ConversationBuilder& conversation, std::vector<std::string>& items) {
  std::string_view text;
  if (input.get(text) == simdjson::SUCCESS) {
    items.push_back(MessageItem("", "user", {std::string(text)}));
    conversation.AddText("user", {std::string(text)});
    return OkStatus();
  }
  simdjson::dom::array list;
  if (input.get(list) != simdjson::SUCCESS || list.size() == 0) {
    return InvalidField(where, "must be a text or a list of items, not empty");
  }
  ItemReader reader(conversation, items);
  size_t index = 0;
  for (const element item : list) {
    if (items.size() == kMaxMessages) {
      return InvalidField(where, "makes a conversation of more than {} items", kMaxMessages);
    }
    RETURN_IF_ERROR(reader.Read(item, where + "[" + std::to_string(index++) + "]"));
  }
  return OkStatus();
}

}  // namespace hayate::api
