// Service: an answer's text, taken apart after the fact, for clients of /generate.

#include <simdjson.h>

#include "api/field_reader.h"
#include "api/service.h"
#include "api/tool_fields.h"
#include "base/error.h"
#include "base/json_writer.h"

namespace hayate::api {
namespace {

std::vector<text::AnswerEvent> Divide(const text::AnswerFormat& format, std::string_view text) {
  std::vector<text::AnswerEvent> events;
  const auto parser = text::MakeAnswerParser(format);
  parser->Feed(text, events);
  parser->Finish(events);
  return events;
}

std::string JoinParts(const std::vector<text::AnswerEvent>& events, text::AnswerPart part) {
  std::string joined;
  for (const text::AnswerEvent& event : events) {
    if (event.part == part) joined += event.text;
  }
  return joined;
}

// Where a call stands among the tools that were offered.
int64_t IndexOf(const ToolUse& use, std::string_view name) {
  for (size_t i = 0; i < use.tools.size(); ++i) {
    if (use.tools[i].name == name) return static_cast<int64_t>(i);
  }
  return -1;
}

void WriteCalls(JsonWriter& json, const std::vector<text::AnswerEvent>& events,
                const ToolUse& use) {
  std::vector<std::pair<std::string_view, std::string>> calls;
  for (const text::AnswerEvent& event : events) {
    if (event.part == text::AnswerPart::kCallName) calls.emplace_back(event.text, "");
    if (event.part == text::AnswerPart::kCallArguments) calls.back().second += event.text;
  }
  json.BeginArray();
  for (const auto& [name, arguments] : calls) {
    json.BeginObject();
    json.Field("tool_index", IndexOf(use, name));
    json.Field("name", name);
    json.Field("parameters", arguments);
    json.EndObject();
  }
  json.EndArray();
}

Result<std::string> ParseCallsBody(const std::string& body, const ServedModel& model) {
  simdjson::dom::parser parser;
  ASSIGN_OR_RETURN(const simdjson::dom::object object, ParseBody(parser, body));
  FieldReader fields(object);
  const auto text = fields.String("text");
  const auto name = fields.String("tool_call_parser");
  ASSIGN_OR_RETURN(const ToolUse use, ReadToolUse(fields, ToolShape::kChat));
  RETURN_IF_ERROR(fields.status());
  if (!text) return InvalidField("text", "is missing");
  const text::ToolDialect* dialect = name ? text::FindToolDialect(*name) : model.tools;
  if (dialect == nullptr) {
    return InvalidField("tool_call_parser", "'{}' is no dialect; docs/api.md lists them",
                        Shown(name.value_or("")));
  }
  const auto events = Divide({.tools = dialect, .signatures = SignaturesOf(use)}, *text);
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("normal_text", JoinParts(events, text::AnswerPart::kContent));
  json.Key("calls");
  WriteCalls(json, events, use);
  json.EndObject();
  return out;
}

Result<std::string> SeparateReasoningBody(const std::string& body, const ServedModel& model) {
  simdjson::dom::parser parser;
  ASSIGN_OR_RETURN(const simdjson::dom::object object, ParseBody(parser, body));
  FieldReader fields(object);
  const auto text = fields.String("text");
  const auto name = fields.String("reasoning_parser");
  RETURN_IF_ERROR(fields.status());
  if (!text) return InvalidField("text", "is missing");
  const text::ReasoningDialect* dialect =
      name ? text::FindReasoningDialect(*name) : model.reasoning;
  if (dialect == nullptr) {
    return InvalidField("reasoning_parser", "'{}' is no dialect; docs/api.md lists them",
                        Shown(name.value_or("")));
  }
  const bool inside = dialect->start == text::ThinkingStart::kInside;
  const auto events = Divide({.reasoning = dialect, .starts_inside = inside}, *text);
  std::string out;
  JsonWriter json(out);
  json.BeginObject();
  json.Field("reasoning_text", JoinParts(events, text::AnswerPart::kReasoning));
  json.Field("text", JoinParts(events, text::AnswerPart::kContent));
  json.EndObject();
  return out;
}

}  // namespace

void Service::ParseFunctionCall(http::Request& request, http::ResponseWriter writer) {
  AnswerFromTextPool(
      request, std::move(writer), "application/json",
      [this, body = std::move(request.body)] { return ParseCallsBody(body, model_); });
}

void Service::SeparateReasoning(http::Request& request, http::ResponseWriter writer) {
  AnswerFromTextPool(
      request, std::move(writer), "application/json",
      [this, body = std::move(request.body)] { return SeparateReasoningBody(body, model_); });
}

}  // namespace hayate::api
