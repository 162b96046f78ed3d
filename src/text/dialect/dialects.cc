#include "text/dialect/dialects.h"

#include <algorithm>

namespace hayate::text {
namespace {

constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";

constexpr std::array kReasoning = {
    ReasoningDialect{"deepseek-r1", kThink, kThinkEnd, ThinkingStart::kInside},
    ReasoningDialect{"deepseek-v3", kThink, kThinkEnd, ThinkingStart::kOutside, true},
    ReasoningDialect{"deepseek-v3.1", kThink, kThinkEnd, ThinkingStart::kOutside, true},
    ReasoningDialect{"deepseek-v4", kThink, kThinkEnd, ThinkingStart::kOutside, true},
    ReasoningDialect{"qwen3", kThink, kThinkEnd, ThinkingStart::kOutside, true},
    ReasoningDialect{"qwen3-thinking", kThink, kThinkEnd, ThinkingStart::kInside},
    ReasoningDialect{.name = "gpt-oss", .harmony = true},
};

constexpr ToolDialect kPlain{.name = "json",
                             .syntax = CallSyntax::kJson,
                             .bare = "[{",
                             .fillers = {",", "]", "["},
                             .section_open = "[",
                             .call_open = R"({"name": ")",
                             .call_mid = R"(", "parameters": )",
                             .call_close = "}",
                             .separator = ", ",
                             .section_close = "]"};

constexpr ToolDialect Hermes(std::string_view name) {
  return {.name = name,
          .syntax = CallSyntax::kJson,
          .openers = {"<tool_call>"},
          .fillers = {"</tool_call>"},
          .call_open = "<tool_call>\n{\"name\": \"",
          .call_mid = R"(", "arguments": )",
          .call_close = "}\n</tool_call>",
          .separator = "\n",
          .template_mark = "<tool_call>"};
}

constexpr ToolDialect Dsml(std::string_view name, std::string_view open, std::string_view close,
                           std::string_view section_open, std::string_view section_close) {
  return {.name = name,
          .syntax = CallSyntax::kTagged,
          .openers = {open},
          .call_begin = "<｜DSML｜invoke name=\"",
          .name_end = "\">",
          .call_end = "</｜DSML｜invoke>",
          .parameters = {.begin = "<｜DSML｜parameter name=\"",
                         .key_end = "\"",
                         .end = "</｜DSML｜parameter>",
                         .typed = true},
          .fillers = {close},
          .section_open = section_open,
          .call_open = "<｜DSML｜invoke name=\"",
          .call_mid = "\">\n",
          .call_close = "</｜DSML｜invoke>\n",
          .section_close = section_close,
          .schema_style = "deepseek_xml",
          .template_mark = open};
}

// V4.1 spells its tags with a blank behind the marker.
constexpr ToolDialect DsmlWithBlanks() {
  ToolDialect dialect = Dsml("deepseekv41", "<｜DSML｜ calls>", "</｜DSML｜ calls>",
                             "\n\n<｜DSML｜ calls>\n", "</｜DSML｜ calls>");
  dialect.call_begin = dialect.call_open = "<｜DSML｜ invoke name=\"";
  dialect.call_end = "</｜DSML｜ invoke>";
  dialect.call_close = "</｜DSML｜ invoke>\n";
  dialect.parameters.begin = "<｜DSML｜ parameter name=\"";
  dialect.parameters.end = "</｜DSML｜ parameter>";
  dialect.schema_style = "deepseek_v4_1_xml";
  return dialect;
}

// The first whose mark is in a template wins: the more particular ones come first.
constexpr std::array kTools = {
    Dsml("deepseekv4", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>",
         "\n\n<｜DSML｜tool_calls>\n", "</｜DSML｜tool_calls>"),
    Dsml("deepseekv32", "<｜DSML｜function_calls>", "</｜DSML｜function_calls>",
         "\n\n<｜DSML｜function_calls>\n", "</｜DSML｜function_calls>"),
    DsmlWithBlanks(),
    ToolDialect{.name = "deepseekv3",
                .syntax = CallSyntax::kNamed,
                .openers = {"<｜tool▁calls▁begin｜>"},
                .call_begin = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                .name_end = "\n```json\n",
                .fillers = {"```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
                .section_open = "<｜tool▁calls▁begin｜>",
                .call_open = "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
                .call_mid = "\n```json\n",
                .call_close = "\n```<｜tool▁call▁end｜>",
                .separator = "\n",
                .section_close = "<｜tool▁calls▁end｜>",
                .template_mark = "<｜tool▁sep｜>' + tool['function']['name'] + '\\n' + '```json'"},
    ToolDialect{.name = "deepseekv31",
                .syntax = CallSyntax::kNamed,
                .openers = {"<｜tool▁calls▁begin｜>"},
                .call_begin = "<｜tool▁call▁begin｜>",
                .name_end = "<｜tool▁sep｜>",
                .fillers = {"<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"},
                .section_open = "<｜tool▁calls▁begin｜>",
                .call_open = "<｜tool▁call▁begin｜>",
                .call_mid = "<｜tool▁sep｜>",
                .call_close = "<｜tool▁call▁end｜>",
                .section_close = "<｜tool▁calls▁end｜>",
                .template_mark = "<｜tool▁calls▁begin｜>"},
    ToolDialect{.name = "qwen3_coder",
                .syntax = CallSyntax::kTagged,
                .openers = {"<tool_call>"},
                .call_begin = "<function=",
                .name_end = ">",
                .call_end = "</function>",
                .parameters = {.begin = "<parameter=",
                               .key_end = ">",
                               .end = "</parameter>",
                               .trims_newlines = true},
                .fillers = {"</tool_call>", "<tool_call>"},
                .call_open = "<tool_call>\n<function=",
                .call_mid = ">\n",
                .call_close = "\n</function>\n</tool_call>",
                .separator = "\n",
                .schema_style = "qwen_xml",
                .template_mark = "<function="},
    Hermes("qwen"),
    Hermes("qwen25"),
    Hermes("hermes"),
    ToolDialect{.name = "gpt-oss",
                .syntax = CallSyntax::kHarmony,
                .call_open = "<|channel|>commentary to=functions.",
                .call_mid = " <|constrain|>json<|message|>",
                .call_close = "<|call|>",
                .template_mark = "<|channel|>"},
    ToolDialect{.name = "mistral",
                .syntax = CallSyntax::kNamed,
                .openers = {"[TOOL_CALLS]"},
                .name_end = "[ARGS]",
                .fillers = {",", "]", "[TOOL_CALLS]", "["},
                .section_open = "[TOOL_CALLS] [",
                .call_open = R"({"name": ")",
                .call_mid = R"(", "arguments": )",
                .call_close = "}",
                .separator = ", ",
                .section_close = "]",
                .template_mark = "[TOOL_CALLS]"},
    ToolDialect{.name = "llama3",
                .syntax = CallSyntax::kJson,
                .openers = {"<|python_tag|>"},
                .bare = "{",
                .fillers = {";", ",", "<|python_tag|>"},
                .call_open = R"({"name": ")",
                .call_mid = R"(", "parameters": )",
                .call_close = "}",
                .separator = "; ",
                .template_mark = "<|python_tag|>"},
    ToolDialect{.name = "pythonic",
                .syntax = CallSyntax::kPythonic,
                .bare = "[",
                .fillers = {",", "]", "["}},
    kPlain,
};

template <typename Dialect>
const Dialect* Find(std::span<const Dialect> dialects, std::string_view name) {
  const auto it = std::find_if(dialects.begin(), dialects.end(),
                               [&](const Dialect& dialect) { return dialect.name == name; });
  return it == dialects.end() ? nullptr : &*it;
}

}  // namespace

const ReasoningDialect* FindReasoningDialect(std::string_view name) {
  return Find(ReasoningDialects(), name);
}

std::span<const ReasoningDialect> ReasoningDialects() { return kReasoning; }

const ToolDialect* FindToolDialect(std::string_view name) { return Find(ToolDialects(), name); }

std::span<const ToolDialect> ToolDialects() { return kTools; }

const ToolDialect* DetectToolDialect(std::string_view template_source) {
  for (const ToolDialect& dialect : kTools) {
    const std::string_view mark = dialect.template_mark;
    if (!mark.empty() && template_source.find(mark) != std::string_view::npos) return &dialect;
  }
  return nullptr;
}

const ReasoningDialect* DetectReasoningDialect(std::string_view template_source) {
  const auto has = [&](std::string_view text) {
    return template_source.find(text) != std::string_view::npos;
  };
  if (has("<|channel|>")) return FindReasoningDialect("gpt-oss");
  if (!has(kThinkEnd)) return nullptr;
  if (has("enable_thinking")) return FindReasoningDialect("qwen3");
  if (has("<｜Assistant｜>")) {
    return FindReasoningDialect(has("thinking") ? "deepseek-v3.1" : "deepseek-r1");
  }
  return FindReasoningDialect("qwen3");
}

const ToolDialect& PlainToolDialect() { return kTools.back(); }

}  // namespace hayate::text
