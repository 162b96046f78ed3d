#pragma once
// How the served model writes thinking and tool calls, and what compiles its grammars.

#include <string>

#include "api/served_model.h"
#include "base/clock.h"
#include "base/status.h"

namespace hayate::app {

struct DialectOptions {
  std::string reasoning_parser = "auto";  // auto: by the chat template; none
  std::string tool_call_parser = "auto";
  std::string grammar_backend = "xgrammar";  // or none
  double grammar_compile_timeout_s = 10;     // a grammar that takes longer is refused
};

// Fills in the model's dialects, markers and grammar compiler. Its tokenizer, chat template,
// vocabulary and end ids are set. The clock outlives the model.
Status SetUpDialects(const DialectOptions& options, const Clock& clock, api::ServedModel& model);

}  // namespace hayate::app
