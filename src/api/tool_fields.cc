#include "api/tool_fields.h"

#include <algorithm>

#include "base/error.h"

namespace hayate::api {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

constexpr size_t kMaxToolName = 128;

bool IsToolName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxToolName &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  std::string_view("_-.:/").find(c) != std::string_view::npos;
         });
}

Result<Tool> ReadTool(element item, const std::string& where) {
  object outer;
  if (item.get(outer) != simdjson::SUCCESS) return InvalidField(where, "must be an object");
  FieldReader fields(outer, where + ".");
  const auto type = fields.String("type");
  const auto function = fields.Object("function");
  RETURN_IF_ERROR(fields.status());
  if (type.value_or("function") != "function") {
    return InvalidField(where + ".type", "'{}' is not supported: give function tools",
                        Shown(*type));
  }
  if (!function) return InvalidField(where + ".function", "is missing");
  FieldReader inner(*function, where + ".function.");
  Tool tool;
  tool.name = inner.String("name").value_or("");
  tool.strict = inner.Bool("strict").value_or(false);
  if (const auto parameters = inner.Object("parameters")) {
    tool.parameters = simdjson::minify(*parameters);
  }
  RETURN_IF_ERROR(inner.status());
  if (!IsToolName(tool.name)) {
    return InvalidField(where + ".function.name", "'{}' must be 1 to {} letters, digits, _ - . : /",
                        Shown(tool.name), kMaxToolName);
  }
  return tool;
}

Status ReadChoice(FieldReader& fields, ToolUse& use) {
  const auto choice = fields.Any("tool_choice");
  if (!choice) {
    use.choice = use.tools.empty() ? ToolChoice::kNone : ToolChoice::kAuto;
    return OkStatus();
  }
  std::string_view mode;
  if (choice->get(mode) == simdjson::SUCCESS) {
    if (mode == "none") use.choice = ToolChoice::kNone;
    if (mode == "auto") use.choice = ToolChoice::kAuto;
    if (mode == "required") use.choice = ToolChoice::kRequired;
    if (mode != "none" && mode != "auto" && mode != "required") {
      return InvalidField("tool_choice", "'{}' is none of none, auto, required", Shown(mode));
    }
  } else {
    std::string_view name;
    if (choice->at_pointer("/function/name").get(name) != simdjson::SUCCESS) {
      return InvalidField("tool_choice",
                          "must be none, auto, required or "
                          "{{\"type\":\"function\",\"function\":{{\"name\":…}}}}");
    }
    use.choice = ToolChoice::kNamed;
    use.named = name;
    const bool known = std::any_of(use.tools.begin(), use.tools.end(),
                                   [&](const Tool& tool) { return tool.name == name; });
    if (!known) {
      return InvalidField("tool_choice", "no tool is named '{}'", Shown(name));
    }
  }
  if (use.demanded() && use.tools.empty()) {
    return InvalidField("tool_choice", "demands a call, but tools holds none");
  }
  return OkStatus();
}

}  // namespace

std::vector<text::ToolSignature> SignaturesOf(const ToolUse& use) {
  std::vector<text::ToolSignature> signatures;
  for (const Tool& tool : use.tools) {
    text::ToolSignature signature{tool.name, {}};
    simdjson::dom::parser parser;
    object properties;
    const simdjson::padded_string schema(tool.parameters);
    if (!tool.parameters.empty() &&
        parser.parse(schema)["properties"].get(properties) == simdjson::SUCCESS) {
      for (const auto property : properties) {
        std::string_view type;
        if (property.value["type"].get(type) == simdjson::SUCCESS && type == "string") {
          signature.string_parameters.emplace(property.key);
        }
      }
    }
    signatures.push_back(std::move(signature));
  }
  return signatures;
}

Result<ToolUse> ReadToolUse(FieldReader& fields) {
  ToolUse use;
  const auto tools = fields.Array("tools");
  use.parallel = fields.Bool("parallel_tool_calls").value_or(true);
  RETURN_IF_ERROR(fields.status());
  if (tools) {
    for (const element item : *tools) {
      if (use.tools.size() == ToolUse::kMaxTools) {
        return InvalidField("tools", "holds more than {} tools", ToolUse::kMaxTools);
      }
      const std::string where = "tools[" + std::to_string(use.tools.size()) + "]";
      ASSIGN_OR_RETURN(Tool tool, ReadTool(item, where));
      use.tools.push_back(std::move(tool));
    }
  }
  RETURN_IF_ERROR(ReadChoice(fields, use));
  return use;
}

}  // namespace hayate::api
