#include "grammar/detail/counted_strings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

namespace hayate::grammar::detail {
namespace {

constexpr int32_t kAny = std::numeric_limits<int32_t>::max();

// As text of the compiler's grammars, which read "\\" as one backslash. Characters by how many
// bytes they have: the compiler joins ranges within one class, and takes overlong forms and halves
// of surrogates where a range goes over such a border.
constexpr std::string_view kCountedBody =
    R"BODY(Regex("([ !#-\\[\\]-\\u007f]|[\\u0080-\\u07ff]|[\\u0800-\\ud7ff]|[\\ue000-\\uffff]|)BODY"
    R"BODY([\\u{10000}-\\u{10ffff}]|\\\\[\"\\\\/bfnrt])*\""))BODY";

std::string RuleName(std::string_view mark, const LengthBounds& bounds) {
  return fmt::format("{}_{}_{}", mark, bounds.least, bounds.most);
}

// The number that `text` begins with, which is cut off.
std::optional<int32_t> TakeNumber(std::string_view& text) {
  int32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return number;
}

void ReplaceAll(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    text.replace(at, from.size(), to);
    at += to.size();
  }
}

}  // namespace

std::optional<LengthBounds> ReadLengthBounds(simdjson::dom::object schema) {
  const auto has = [&](const char* keyword) {
    return schema.at_key(keyword).error() == simdjson::SUCCESS;
  };
  const bool at_most = has("maxLength");
  if (has("pattern") || has("format") || (!at_most && !has("minLength"))) return std::nullopt;
  int64_t least = 0;
  int64_t most = kAny;
  if (schema.at_key("minLength").get(least) != simdjson::SUCCESS) least = 0;
  if (schema.at_key("maxLength").get(most) != simdjson::SUCCESS) most = kAny;
  if (least < 0 || most < least) return std::nullopt;
  return LengthBounds{static_cast<int32_t>(std::min<int64_t>(least, kAny)),
                      static_cast<int32_t>(std::min<int64_t>(most, kAny))};
}

std::string MarkFor(std::string_view json) {
  // Escapes may spell it too; written anew only what has to be escaped is.
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  const simdjson::padded_string padded(json);
  if (parser.parse(padded).get(root) != simdjson::SUCCESS) return "counted";
  const std::string text(simdjson::minify(root));
  std::string mark = "counted";
  while (text.find(mark) != std::string::npos) mark += 'x';
  return mark;
}

std::string PatternOf(std::string_view mark, const LengthBounds& bounds) {
  return "^" + RuleName(mark, bounds) + "$";
}

std::string WithCountedRules(std::string rules, std::string_view mark) {
  const std::string begin = fmt::format(" ::= Regex(\"^{}", mark);
  constexpr std::string_view kEnd = "$\", json_string=true)\n";
  std::set<std::string> added;
  for (size_t at = rules.find(begin); at != std::string::npos; at = rules.find(begin, at)) {
    const size_t line = rules.rfind('\n', at) + 1;
    const size_t end = rules.find(kEnd, at);
    if (end == std::string::npos) break;
    const std::string was = rules.substr(line, at - line);
    const size_t name_at = at + begin.size() - mark.size();
    const std::string name = rules.substr(name_at, end - name_at);
    rules.erase(line, end + kEnd.size() - line);
    // The closing quote is the rule's own: only whoever counts knows where it may stand.
    ReplaceAll(rules, fmt::format(" {} \"\\\"\"", was), " " + name);
    added.insert(name);
    at = line == 0 ? 0 : line - 1;
  }
  // A rule that something is captured of stays a rule, and keeps the place where it began.
  for (const std::string& name : added) {
    rules += fmt::format("{}[capture] ::= {}\n", name, kCountedBody);
  }
  return rules;
}

std::optional<LengthBounds> BoundsOfRule(std::string_view name, std::string_view mark) {
  if (mark.empty() || !name.starts_with(mark)) return std::nullopt;
  name.remove_prefix(mark.size());
  LengthBounds bounds;
  for (int32_t* bound : {&bounds.least, &bounds.most}) {
    if (!name.starts_with('_')) return std::nullopt;
    name.remove_prefix(1);
    const auto number = TakeNumber(name);
    if (!number) return std::nullopt;
    *bound = *number;
  }
  return bounds;
}

}  // namespace hayate::grammar::detail
