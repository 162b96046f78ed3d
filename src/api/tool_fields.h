#pragma once
// tools, tool_choice and parallel_tool_calls of a chat request.

#include "api/field_reader.h"
#include "api/tool_use.h"
#include "base/status.h"

namespace hayate::api {

Result<ToolUse> ReadToolUse(FieldReader& fields);

}  // namespace hayate::api
