#include "api/thinking_fields.h"

#include <algorithm>
#include <array>
#include <limits>

namespace hayate::api {
namespace {

using text::jinja::Dict;
using text::jinja::Value;

constexpr std::array<std::string_view, 7> kLevels = {"none", "minimal", "low", "medium",
                                                     "high", "xhigh",   "max"};
constexpr int64_t kMaxBudget = std::numeric_limits<int32_t>::max();

// A level's name, or a number for models that take one.
void ReadEffort(FieldReader& fields, const char* name, ThinkingFields& thinking) {
  const auto effort = fields.Any(name);
  if (!effort) return;
  std::string_view level;
  if (effort->is_number()) {
    thinking.effort = std::string(simdjson::minify(*effort));
    return;
  }
  if (effort->get(level) != simdjson::SUCCESS ||
      std::find(kLevels.begin(), kLevels.end(), level) == kLevels.end()) {
    return fields.Fail(name, "is one of none, minimal, low, medium, high, xhigh, max, or a number");
  }
  thinking.effort = std::string(level);
  thinking.enabled = level != "none";
}

}  // namespace

ThinkingFields ReadThinkingFields(FieldReader& fields, GenerationSpec& spec) {
  ThinkingFields thinking;
  ReadEffort(fields, "reasoning_effort", thinking);
  if (const auto reasoning = fields.Object("reasoning")) {
    FieldReader inner(*reasoning, "reasoning.");
    ReadEffort(inner, "effort", thinking);
    if (const auto enabled = inner.Bool("enabled")) thinking.enabled = enabled;
    if (const auto budget = inner.Int("max_tokens", 0, kMaxBudget)) spec.thinking_budget = budget;
    fields.Fail(inner.status());
  }
  if (const auto custom = fields.Object("custom_params")) {
    FieldReader inner(*custom, "custom_params.");
    if (const auto budget = inner.Int("thinking_budget", 0, kMaxBudget)) {
      spec.thinking_budget = budget;
    }
    fields.Fail(inner.status());
  }
  if (const auto budget = fields.Int("thinking_budget", 0, kMaxBudget)) {
    spec.thinking_budget = budget;
  }
  spec.separate_reasoning = fields.Bool("separate_reasoning").value_or(true);
  spec.stream_reasoning = fields.Bool("stream_reasoning").value_or(true);
  return thinking;
}

ThinkingFields ReadMessagesThinking(FieldReader& fields, GenerationSpec& spec) {
  ThinkingFields thinking{.enabled = false};
  if (const auto config = fields.Object("output_config")) {
    FieldReader inner(*config, "output_config.");
    ReadEffort(inner, "effort", thinking);
    fields.Fail(inner.status());
    thinking.enabled = false;
  }
  const auto config = fields.Object("thinking");
  if (!config) return thinking;
  FieldReader inner(*config, "thinking.");
  const std::string_view type = inner.String("type").value_or("");
  if (type != "enabled" && type != "adaptive" && type != "disabled") {
    inner.Fail("type", "'" + Shown(type) + "' is none of enabled, adaptive, disabled");
  }
  thinking.enabled = type != "disabled";
  const auto budget = inner.Int("budget_tokens", 1, kMaxBudget);
  if (type == "enabled") {
    if (!budget) inner.Fail("budget_tokens", "is missing");
    spec.thinking_budget = budget;
    if (budget && spec.max_new_tokens && *budget >= *spec.max_new_tokens) {
      inner.Fail("budget_tokens", "must be less than max_tokens");
    }
  }
  const std::string_view display = inner.String("display").value_or("summarized");
  if (display != "summarized" && display != "omitted") {
    inner.Fail("display", "'" + Shown(display) + "' is none of summarized, omitted");
  }
  spec.show_reasoning = display != "omitted";
  fields.Fail(inner.status());
  return thinking;
}

void ApplyThinking(const ThinkingFields& thinking, const ServedModel& model,
                   text::ChatInput& conversation) {
  if (!thinking.enabled && !thinking.effort) return;
  Dict variables;
  const bool has_switch = model.reasoning != nullptr && model.reasoning->has_switch;
  if (thinking.enabled && has_switch) {
    // The two names that templates know.
    variables.Set("enable_thinking", Value::Bool(*thinking.enabled));
    variables.Set("thinking", Value::Bool(*thinking.enabled));
  }
  if (thinking.effort && *thinking.effort != "none") {
    variables.Set("reasoning_effort", Value::String(*thinking.effort));
  }
  if (conversation.kwargs.is_dict()) {
    for (const auto& [name, value] : conversation.kwargs.dict().entries()) {
      variables.Set(name, value);
    }
  }
  conversation.kwargs = Value::FromDict(std::move(variables));
}

}  // namespace hayate::api
