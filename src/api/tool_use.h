#pragma once
// The tools of a request and how they may be used.

#include <cstdint>
#include <string>
#include <vector>

#include "text/dialect/answer_parser.h"

namespace hayate::api {

struct Tool {
  std::string name;
  std::string description;
  std::string parameters;  // JSON Schema; empty: any object
  bool strict = false;     // the arguments satisfy the schema even where the model may choose
};

enum class ToolChoice : uint8_t {
  kNone,      // no calls: text that looks like one is text
  kAuto,      // the model decides
  kRequired,  // one call at least
  kNamed,     // a call of this one tool
};

struct ToolUse {
  std::vector<Tool> tools;
  ToolChoice choice = ToolChoice::kNone;
  std::string named;     // with kNamed
  bool parallel = true;  // several calls in one answer

  bool active() const { return choice != ToolChoice::kNone && !tools.empty(); }
  bool demanded() const { return choice == ToolChoice::kRequired || choice == ToolChoice::kNamed; }
  static constexpr size_t kMaxTools = 1024;
};

// What the answer's parser must know of them.
std::vector<text::ToolSignature> SignaturesOf(const ToolUse& use);

}  // namespace hayate::api
