#include "api/tool_fields.h"

#include <algorithm>
#include <span>

#include "base/error.h"
#include "text/template/json.h"

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

Result<Tool> ReadTool(element item, const std::string& where, ToolShape shape) {
  object outer;
  if (item.get(outer) != simdjson::SUCCESS) return InvalidField(where, "must be an object");
  FieldReader fields(outer, where + ".");
  const std::string_view kind = shape == ToolShape::kMessages ? "custom" : "function";
  const auto type = fields.String("type");
  if (type.value_or(kind) != kind) {
    return InvalidField(where + ".type", "'{}' is not supported: give {} tools", Shown(*type),
                        kind);
  }
  std::string prefix = where + ".";
  if (shape == ToolShape::kChat) {
    const auto function = fields.Object("function");
    RETURN_IF_ERROR(fields.status());
    if (!function) return InvalidField(where + ".function", "is missing");
    outer = *function;
    prefix += "function.";
  }
  RETURN_IF_ERROR(fields.status());
  FieldReader inner(outer, prefix);
  Tool tool;
  tool.name = inner.String("name").value_or("");
  tool.description = inner.String("description").value_or("");
  tool.strict = inner.Bool("strict").value_or(false);
  const char* schema = shape == ToolShape::kMessages ? "input_schema" : "parameters";
  if (const auto parameters = inner.Object(schema)) {
    tool.parameters = simdjson::minify(*parameters);
  }
  RETURN_IF_ERROR(inner.status());
  if (!IsToolName(tool.name)) {
    return InvalidField(prefix + "name", "'{}' must be 1 to {} letters, digits, _ - . : /",
                        Shown(tool.name), kMaxToolName);
  }
  return tool;
}

struct ChoiceName {
  std::string_view word;
  ToolChoice choice;
};
constexpr ChoiceName kChoices[] = {
    {"none", ToolChoice::kNone}, {"auto", ToolChoice::kAuto}, {"required", ToolChoice::kRequired}};
// As the `type` of an object.
constexpr ChoiceName kMessagesChoices[] = {{"none", ToolChoice::kNone},
                                           {"auto", ToolChoice::kAuto},
                                           {"any", ToolChoice::kRequired},
                                           {"tool", ToolChoice::kNamed}};

const ChoiceName* FindChoice(std::span<const ChoiceName> choices, std::string_view word) {
  for (const ChoiceName& choice : choices) {
    if (choice.word == word) return &choice;
  }
  return nullptr;
}

// Sets the choice, and the tool that it names.
Status ReadChoiceValue(element value, ToolShape shape, ToolUse& use) {
  std::string_view word;
  if (shape == ToolShape::kMessages) {
    const ChoiceName* choice = nullptr;
    if (value.at_pointer("/type").get(word) == simdjson::SUCCESS) {
      choice = FindChoice(kMessagesChoices, word);
    }
    if (choice == nullptr) {
      return InvalidField("tool_choice",
                          "must be {{\"type\":…}} with auto, any, none, or tool and a name");
    }
    use.choice = choice->choice;
    bool disabled = false;
    if (value.at_pointer("/disable_parallel_tool_use").get(disabled) == simdjson::SUCCESS) {
      use.parallel = !disabled;
    }
    if (use.choice != ToolChoice::kNamed) return OkStatus();
    if (value.at_pointer("/name").get(word) != simdjson::SUCCESS) word = "";
  } else if (value.get(word) == simdjson::SUCCESS) {
    const ChoiceName* choice = FindChoice(kChoices, word);
    if (choice == nullptr) {
      return InvalidField("tool_choice", "'{}' is none of none, auto, required", Shown(word));
    }
    use.choice = choice->choice;
    return OkStatus();
  } else {
    const bool chat = shape == ToolShape::kChat;
    if (value.at_pointer(chat ? "/function/name" : "/name").get(word) != simdjson::SUCCESS) {
      return InvalidField("tool_choice", "must be none, auto, required or {}",
                          chat ? R"({"type":"function","function":{"name":…}})"
                               : R"({"type":"function","name":…})");
    }
    use.choice = ToolChoice::kNamed;
  }
  use.named = word;
  const bool known = std::any_of(use.tools.begin(), use.tools.end(),
                                 [&](const Tool& tool) { return tool.name == use.named; });
  if (!known) return InvalidField("tool_choice", "no tool is named '{}'", Shown(word));
  return OkStatus();
}

Status ReadChoice(FieldReader& fields, ToolShape shape, ToolUse& use) {
  const auto choice = fields.Any("tool_choice");
  if (!choice) {
    use.choice = use.tools.empty() ? ToolChoice::kNone : ToolChoice::kAuto;
    return OkStatus();
  }
  RETURN_IF_ERROR(ReadChoiceValue(*choice, shape, use));
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

Result<ToolUse> ReadToolUse(FieldReader& fields, ToolShape shape) {
  ToolUse use;
  const auto tools = fields.Array("tools");
  if (shape != ToolShape::kMessages) {
    use.parallel = fields.Bool("parallel_tool_calls").value_or(true);
  }
  RETURN_IF_ERROR(fields.status());
  if (tools) {
    for (const element item : *tools) {
      if (use.tools.size() == ToolUse::kMaxTools) {
        return InvalidField("tools", "holds more than {} tools", ToolUse::kMaxTools);
      }
      const std::string where = "tools[" + std::to_string(use.tools.size()) + "]";
      ASSIGN_OR_RETURN(Tool tool, ReadTool(item, where, shape));
      use.tools.push_back(std::move(tool));
    }
  }
  RETURN_IF_ERROR(ReadChoice(fields, shape, use));
  return use;
}

Result<text::jinja::Value> TemplateTools(const ToolUse& use) {
  using text::jinja::Dict;
  using text::jinja::Value;
  if (use.tools.empty()) return Value::None();
  std::vector<Value> items;
  for (const Tool& tool : use.tools) {
    Dict function{{"name", Value::String(tool.name)}};
    if (!tool.description.empty()) function.Set("description", Value::String(tool.description));
    if (!tool.parameters.empty()) {
      ASSIGN_OR_RETURN(Value parameters, text::jinja::ParseJson(tool.parameters));
      function.Set("parameters", std::move(parameters));
    }
    items.push_back(Value::FromDict(Dict{{"type", Value::String("function")},
                                         {"function", Value::FromDict(std::move(function))}}));
  }
  return Value::List(std::move(items));
}

}  // namespace hayate::api
