#pragma once
// The tools of a request and how the model may use them.

#include "api/field_reader.h"
#include "api/tool_use.h"
#include "base/status.h"
#include "text/template/value.h"

namespace hayate::api {

// How a surface writes a tool:
//   kChat       {"type":"function","function":{"name","description","parameters","strict"}}
//   kResponses  {"type":"function","name","description","parameters","strict"}
//   kMessages   {"name","description","input_schema"}, and tool_choice as an object
enum class ToolShape : uint8_t { kChat, kResponses, kMessages };

Result<ToolUse> ReadToolUse(FieldReader& fields, ToolShape shape);

// The tools in chat's form, which is the one that templates read; None without any.
Result<text::jinja::Value> TemplateTools(const ToolUse& use);

}  // namespace hayate::api
