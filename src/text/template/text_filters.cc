#include <array>

#include "base/error.h"
#include "text/template/arguments.h"
#include "text/template/code_points.h"
#include "text/template/comparison.h"
#include "text/template/filters.h"
#include "text/template/format.h"
#include "text/template/json.h"
#include "text/template/markup.h"
#include "text/template/methods.h"
#include "text/template/printing.h"
#include "text/template/text_search.h"

namespace hayate::text::jinja {
namespace {

using CaseMap = std::string (*)(std::string_view text);
template <CaseMap map>
Result<Value> MapCase(State& state, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  ASSIGN_OR_RETURN(const std::string text, ToText(state, value));
  return state.NewString(map(text));
}

bool BeginsWord(char32_t c) {
  return IsSpace(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
}

// Upper case after white space, a dash or an opening bracket, unlike str.title().
std::string Title(std::string_view text) {
  std::string out;
  bool at_start = true;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = CodePointAt(text, i);
    const std::string_view character = text.substr(i, c.length);
    out += at_start ? Upper(character) : Lower(character);
    at_start = BeginsWord(c.value);
    i += c.length;
  }
  return out;
}

Result<Value> Trim(State& state, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(std::string text, ToText(state, value));
  ASSIGN_OR_RETURN(const Value text_value, state.NewString(std::move(text)));
  return FindTextMethod("strip")->function(state, text_value, arguments);
}

Result<Value> Replace(State& state, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<3>(arguments, {"old", "new", "count"}));
  ASSIGN_OR_RETURN(const Value* old_value, RequiredArgument(bound[0], "old"));
  ASSIGN_OR_RETURN(const Value* new_value, RequiredArgument(bound[1], "new"));
  const bool unlimited = bound[2] == nullptr || bound[2]->is_none();
  ASSIGN_OR_RETURN(const int64_t limit,
                   IntegerArgument(unlimited ? nullptr : bound[2], -1, "count"));
  ASSIGN_OR_RETURN(const std::string text, ToText(state, value));
  ASSIGN_OR_RETURN(const std::string from, ToText(state, *old_value));
  ASSIGN_OR_RETURN(const std::string to, ToText(state, *new_value));
  return ReplaceText(state, text, {from, to, limit});
}

Result<std::string> Indentation(const Value* width) {
  if (width != nullptr && width->is_string()) return width->string();
  ASSIGN_OR_RETURN(const int64_t spaces, IntegerArgument(width, 4, "width"));
  if (spaces > 1000) return Error(ErrorCode::kInvalidArgument, "'width' is over 1000");
  return std::string(static_cast<size_t>(std::max<int64_t>(spaces, 0)), ' ');
}

Result<Value> Indent(State& state, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<3>(arguments, {"width", "first", "blank"}));
  if (!value.is_string()) {
    return Error(ErrorCode::kInvalidArgument, "indents text only, not {}", value.type_name());
  }
  ASSIGN_OR_RETURN(const std::string indentation, Indentation(bound[0]));
  const bool indent_first = TruthArgument(bound[1], false);
  const bool indent_blank = TruthArgument(bound[2], false);
  // One more newline makes a text's last line count even when it is empty.
  ASSIGN_OR_RETURN(const Value closed, state.NewString(value.string() + "\n"));
  ASSIGN_OR_RETURN(const Value lines, FindTextMethod("splitlines")->function(state, closed, {}));
  std::string out;
  bool first = true;
  for (const Value& line : lines.sequence().items) {
    if (!first) out += '\n';
    if (first ? indent_first : indent_blank || !line.string().empty()) out += indentation;
    out += line.string();
    first = false;
    RETURN_IF_ERROR(state.CheckStringSize(out.size()));
  }
  return state.NewString(std::move(out));
}

Result<Value> ToString(State& state, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  if (value.is_string()) return value;
  ASSIGN_OR_RETURN(std::string text, ToText(state, value));
  return state.NewString(std::move(text));
}

Result<Value> MarkSafe(State& state, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  ASSIGN_OR_RETURN(std::string text, ToText(state, value));
  RETURN_IF_ERROR(state.Charge(text.size()));
  return Value::Markup(std::move(text));
}

Result<Value> ForceEscape(State& state, const Value& value, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  ASSIGN_OR_RETURN(const std::string text, ToText(state, value));
  std::string escaped = EscapeHtml(text);
  RETURN_IF_ERROR(state.CheckStringSize(escaped.size()));
  RETURN_IF_ERROR(state.Charge(escaped.size()));
  return Value::Markup(std::move(escaped));
}

Result<Value> Escape(State& state, const Value& value, const Arguments& arguments) {
  return value.is_markup() ? Result<Value>(value) : ForceEscape(state, value, arguments);
}

Result<Value> Format(State& state, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const std::string format, ToText(state, value));
  if (arguments.keyword.empty()) {
    ASSIGN_OR_RETURN(const Value tuple, state.NewTuple(arguments.positional));
    return FormatPercent(state, format, tuple);
  }
  if (!arguments.positional.empty()) {
    return Error(ErrorCode::kInvalidArgument, "takes positional or keyword arguments, not both");
  }
  Dict names;
  for (const auto& [name, argument] : arguments.keyword) names.Set(std::string(name), argument);
  ASSIGN_OR_RETURN(const Value dict, state.NewDict(std::move(names)));
  return FormatPercent(state, format, dict);
}

Result<JsonStyle> StyleFrom(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound,
                   Bind<4>(arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ascii_only = TruthArgument(bound[0], false);
  style.sort_keys = TruthArgument(bound[3], false);
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    ASSIGN_OR_RETURN(style.indent, Indentation(bound[1]));
    style.item_separator = std::string(",");
  }
  if (bound[2] == nullptr || bound[2]->is_none()) return style;
  const bool is_pair = bound[2]->is_sequence() && bound[2]->sequence().items.size() == 2 &&
                       bound[2]->sequence().items[0].is_string() &&
                       bound[2]->sequence().items[1].is_string();
  if (!is_pair) return Error(ErrorCode::kInvalidArgument, "'separators' must be a pair of texts");
  style.item_separator = bound[2]->sequence().items[0].string();
  style.key_separator = bound[2]->sequence().items[1].string();
  return style;
}

Result<Value> ToJsonText(State& state, const Value& value, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const JsonStyle style, StyleFrom(arguments));
  return ToJson(state, value, style);
}

constexpr std::array<NamedFunction, 14> kFilters = {{
    {"capitalize", MapCase<Capitalize>},
    {"e", Escape},
    {"escape", Escape},
    {"forceescape", ForceEscape},
    {"format", Format},
    {"indent", Indent},
    {"lower", MapCase<Lower>},
    {"replace", Replace},
    {"safe", MarkSafe},
    {"string", ToString},
    {"title", MapCase<Title>},
    {"tojson", ToJsonText},
    {"trim", Trim},
    {"upper", MapCase<Upper>},
}};

}  // namespace

std::span<const NamedFunction> TextFilters() { return kFilters; }

}  // namespace hayate::text::jinja
