#include "api/messages_parse.h"

#include <limits>
#include <memory>

#include "api/conversation.h"
#include "api/field_reader.h"
#include "api/grammar_fields.h"
#include "api/request_fields.h"
#include "api/text_parts.h"
#include "api/thinking_fields.h"
#include "api/tool_fields.h"
#include "base/error.h"

namespace hayate::api {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

constexpr std::string_view kTextTypes[] = {"text"};

// Accepted without effect: they do not change what is generated here.
constexpr std::string_view kIgnored[] = {"metadata",      "service_tier",   "cache_control",
                                         "inference_geo", "anthropic_beta", "betas"};
constexpr std::string_view kRefused[] = {"container", "mcp_servers", "context_management"};

// One message's content: texts stay together, calls and their results become messages of the
// conversation's own.
class BlockReader {
 public:
  BlockReader(ConversationBuilder& conversation, std::string_view role)
      : conversation_(conversation), role_(role) {}

  Status Read(element content, const std::string& where) {
    simdjson::dom::array blocks;
    if (content.get(blocks) != simdjson::SUCCESS) {
      ASSIGN_OR_RETURN(texts_, ReadTexts(content, where, kTextTypes));
      EndTexts();
      return OkStatus();
    }
    size_t index = 0;
    for (const element block : blocks) {
      RETURN_IF_ERROR(ReadBlock(block, where + "[" + std::to_string(index++) + "]"));
    }
    EndTexts();
    return OkStatus();
  }

 private:
  void EndTexts() {
    if (!texts_.empty()) conversation_.AddText(role_, std::move(texts_));
    texts_.clear();
  }

  Status ReadBlock(element block, const std::string& where) {
    object fields;
    if (block.get(fields) != simdjson::SUCCESS) return InvalidField(where, "must be an object");
    FieldReader reader(fields, where + ".");
    const std::string_view type = reader.String("type").value_or("");
    const bool assistant = role_ == "assistant";
    if (type == "text") {
      const auto text = reader.String("text");
      RETURN_IF_ERROR(reader.status());
      if (!text) return InvalidField(where + ".text", "is missing");
      texts_.emplace_back(*text);
      return OkStatus();
    }
    if (assistant && type == "thinking") {
      const auto thinking = reader.String("thinking");
      if (thinking && !thinking->empty()) conversation_.AddReasoning(*thinking);
      return reader.status();
    }
    if (assistant && type == "redacted_thinking") return OkStatus();
    EndTexts();
    if (assistant && type == "tool_use") return ReadToolUseBlock(reader, where);
    if (!assistant && type == "tool_result") return ReadToolResult(reader, where);
    return InvalidField(where + ".type", "'{}' is not supported in a message of the {}",
                        Shown(type), assistant ? "assistant" : "user");
  }

  Status ReadToolUseBlock(FieldReader& reader, const std::string& where) {
    const auto id = reader.String("id");
    const auto name = reader.String("name");
    const auto input = reader.Object("input");
    RETURN_IF_ERROR(reader.status());
    if (!id || !name) return InvalidField(where, "needs id and name");
    conversation_.AddCall({std::string(*id), std::string(*name),
                           input ? std::string(simdjson::minify(*input)) : "{}"});
    return OkStatus();
  }

  Status ReadToolResult(FieldReader& reader, const std::string& where) {
    const auto id = reader.String("tool_use_id");
    const auto content = reader.Any("content");
    RETURN_IF_ERROR(reader.status());
    if (!id) return InvalidField(where + ".tool_use_id", "is missing");
    std::vector<std::string> texts;
    simdjson::dom::array parts;
    const bool empty = !content || (content->get(parts) == simdjson::SUCCESS && parts.size() == 0);
    if (!empty) {
      ASSIGN_OR_RETURN(texts, ReadTexts(*content, where + ".content", kTextTypes));
    }
    conversation_.AddResult(*id, std::move(texts));
    return OkStatus();
  }

  ConversationBuilder& conversation_;
  std::string_view role_;
  std::vector<std::string> texts_;
};

Status ReadMessages(FieldReader& fields, ConversationBuilder& conversation) {
  if (const auto system = fields.Any("system")) {
    ASSIGN_OR_RETURN(auto texts, ReadTexts(*system, "system", kTextTypes));
    conversation.AddText("system", std::move(texts));
  }
  const auto messages = fields.Array("messages");
  RETURN_IF_ERROR(fields.status());
  if (!messages || messages->size() == 0) {
    return InvalidField("messages", "must hold at least one message");
  }
  if (messages->size() > kMaxMessages) {
    return InvalidField("messages", "holds more than {} messages", kMaxMessages);
  }
  size_t index = 0;
  for (const element item : *messages) {
    const std::string where = "messages[" + std::to_string(index++) + "]";
    object message;
    if (item.get(message) != simdjson::SUCCESS) return InvalidField(where, "must be an object");
    FieldReader reader(message, where + ".");
    const std::string_view role = reader.String("role").value_or("");
    const auto content = reader.Any("content");
    RETURN_IF_ERROR(reader.status());
    if (role != "user" && role != "assistant") {
      return InvalidField(where + ".role", "'{}' is none of user, assistant", Shown(role));
    }
    if (!content) return InvalidField(where + ".content", "is missing");
    RETURN_IF_ERROR(BlockReader(conversation, role).Read(*content, where + ".content"));
  }
  if (conversation.messages().empty()) {
    return InvalidField("messages", "must hold at least one block of content");
  }
  return OkStatus();
}

// Anthropic's own name for stop strings.
void ReadStopSequences(FieldReader& fields, GenerationSpec& spec) {
  std::vector<std::string> stops = fields.Strings("stop_sequences", text::StopStrings::kMaxStrings);
  std::erase(stops, "");
  if (stops.empty()) return;
  auto automaton = text::StopStrings::Create(std::move(stops));
  if (!automaton.ok()) return fields.Fail("stop_sequences", automaton.status().message());
  spec.stop_strings = std::make_shared<const text::StopStrings>(*std::move(automaton));
}

void ReadOutputFormat(FieldReader& fields, GenerationSpec& spec) {
  const auto config = fields.Object("output_config");
  if (!config) return;
  FieldReader inner(*config, "output_config.");
  spec.grammar = ReadFormatField(inner, "format", "output_config.");
  fields.Fail(inner.status());
}

}  // namespace

Result<GenerationSpec> ParseMessagesRequest(object body, const ServedModel& model, MessagesUse use,
                                            std::vector<std::string>& unknown) {
  FieldReader fields(body);
  GenerationSpec spec;
  spec.dialect = Dialect::kMessages;
  ReadRequestFields(fields, model, spec);
  if (spec.n != 1) fields.Fail("n", "a message has one answer");
  spec.max_new_tokens = fields.Int("max_tokens", 1, std::numeric_limits<int64_t>::max());
  if (use == MessagesUse::kGenerate && !spec.max_new_tokens) {
    fields.Fail("max_tokens", "is missing");
  }
  ReadStopSequences(fields, spec);
  ReadOutputFormat(fields, spec);
  const ThinkingFields thinking = ReadMessagesThinking(fields, spec);
  for (const std::string_view name : kRefused) {
    if (fields.Any(name)) fields.Fail(name, "is not supported by this server");
  }
  for (const std::string_view name : kIgnored) fields.Ignore(name);
  RETURN_IF_ERROR(fields.status());
  ASSIGN_OR_RETURN(spec.tools, ReadToolUse(fields, ToolShape::kMessages));
  ChooseAnswerFormat(model, spec);

  ConversationBuilder conversation(*model.chat_template);
  RETURN_IF_ERROR(ReadMessages(fields, conversation));
  text::ChatInput input;
  input.messages = conversation.ForTemplate();
  if (spec.tools.choice != ToolChoice::kNone) {
    ASSIGN_OR_RETURN(input.tools, TemplateTools(spec.tools));
  }
  // An assistant's text at the end is the beginning of the answer.
  const Message& last = conversation.messages().back();
  if (last.role == "assistant" && last.calls.empty()) {
    input.ending = text::ChatEnding::kContinueFinalMessage;
  }
  ApplyThinking(thinking, model, input);
  spec.prompts.emplace_back(std::move(input));
  unknown = fields.Unread();
  return spec;
}

}  // namespace hayate::api
