#pragma once
// How model families write thinking and tool calls, as data: what the parsers look for and what a
// grammar must demand. Names are those of --reasoning-parser and --tool-call-parser.

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace hayate::text {

// ---- Thinking.

enum class ThinkingStart : uint8_t {
  kInside,   // an answer begins inside, unless the prompt ends with the end marker
  kOutside,  // it begins inside only where the prompt ends with the begin marker
};

struct ReasoningDialect {
  std::string_view name;
  std::string_view begin;
  std::string_view end;
  ThinkingStart start = ThinkingStart::kOutside;
  // Template variable that switches thinking on and off; both common names are sent.
  bool has_switch = false;
  bool harmony = false;  // channels instead of markers: begin and end are not used
};

// Null when there is none of that name.
const ReasoningDialect* FindReasoningDialect(std::string_view name);
std::span<const ReasoningDialect> ReasoningDialects();

// ---- Tool calls.

enum class CallSyntax : uint8_t {
  kJson,    // {"name": …, "arguments": {…}}, also "parameters"; any order, further keys ignored
  kNamed,   // name, `name_end`, {…}
  kTagged,  // name, `name_end`, then a tag for each parameter
  kPythonic,  // name(key=literal, …)
  kHarmony,   // a channel's message
};

// Parameters as tags: `begin` key `key_end` value `end`.
struct ParameterTags {
  std::string_view begin;
  std::string_view key_end;
  std::string_view end;
  // DSML: between key and value stands string="true" or "false", which says what the value is.
  // Without it, the tool's schema does.
  bool typed = false;
  bool trims_newlines = false;  // one line end after key_end and one before end are no part of it
};

struct ToolDialect {
  std::string_view name;
  CallSyntax syntax = CallSyntax::kJson;
  // Any of them opens a stretch of calls, anywhere in the text.
  std::array<std::string_view, 2> openers = {};
  // An answer that begins with this character may be calls without an opener.
  std::string_view bare = "";
  // What stands before a call's name or object, inside such a stretch. Empty: the call at once.
  std::string_view call_begin = "";
  std::string_view name_end = "";
  std::string_view call_end = "";  // kTagged: closes the call
  ParameterTags parameters = {};
  // Between and after calls, beside white space.
  std::array<std::string_view, 5> fillers = {};

  // For grammars: open section call_open NAME call_mid ARGUMENTS call_close (separator …) close.
  // No grammar where `call_mid` is empty.
  std::string_view section_open = "";
  std::string_view call_open = "";
  std::string_view call_mid = "";
  std::string_view call_close = "";
  std::string_view separator = "";
  std::string_view section_close = "";
  std::string_view schema_style = "json";  // xgrammar's name for the form of the arguments
  // A template of a model that speaks this dialect holds it.
  std::string_view template_mark = "";
};

const ToolDialect* FindToolDialect(std::string_view name);
std::span<const ToolDialect> ToolDialects();
// The dialect whose mark stands in the template, or null.
const ToolDialect* DetectToolDialect(std::string_view template_source);
const ReasoningDialect* DetectReasoningDialect(std::string_view template_source);
// A list of {"name","parameters"} objects: for models that know no dialect, under a grammar.
const ToolDialect& PlainToolDialect();

}  // namespace hayate::text
