#include "text/template/split_methods.h"

#include <algorithm>

#include "base/error.h"
#include "text/template/arguments.h"
#include "text/template/code_points.h"
#include "text/template/text_search.h"

namespace hayate::text::jinja {
namespace {

Status AddPart(State& state, std::vector<Value>& parts, std::string_view part) {
  RETURN_IF_ERROR(state.Step());
  ASSIGN_OR_RETURN(Value value, state.NewString(std::string(part)));
  parts.push_back(std::move(value));
  return OkStatus();
}

size_t SpaceEnd(std::string_view text) { return text.size() - StripLeft(text).size(); }
size_t WordEnd(std::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    const CodePoint c = CodePointAt(text, end);
    if (IsSpace(c.value)) break;
    end += c.length;
  }
  return end;
}

// split() without a separator: words between runs of white space; at most `limit` cuts if ≥ 0.
Result<Value> SplitWords(State& state, std::string_view text, int64_t limit) {
  std::vector<Value> parts;
  text.remove_prefix(SpaceEnd(text));
  while (!text.empty()) {
    const bool rest = limit >= 0 && static_cast<int64_t>(parts.size()) == limit;
    const size_t end = rest ? text.size() : WordEnd(text);
    RETURN_IF_ERROR(AddPart(state, parts, text.substr(0, end)));
    text.remove_prefix(end);
    text.remove_prefix(SpaceEnd(text));
  }
  return state.NewList(std::move(parts));
}

// rsplit() without a separator.
Result<Value> SplitWordsFromRight(State& state, std::string_view text, int64_t limit) {
  std::vector<Value> parts;
  text = StripRight(text);
  while (!text.empty()) {
    size_t start = 0;
    if (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
      start = text.size();
      while (start > 0) {
        size_t previous = start - 1;
        while (previous > 0 && (text[previous] & 0xC0) == 0x80) --previous;
        if (IsSpace(CodePointAt(text, previous).value)) break;
        start = previous;
      }
    }
    RETURN_IF_ERROR(AddPart(state, parts, text.substr(start)));
    text = StripRight(text.substr(0, start));
  }
  std::reverse(parts.begin(), parts.end());
  return state.NewList(std::move(parts));
}

Result<Value> SplitAt(State& state, std::string_view text, std::string_view separator,
                      int64_t limit) {
  std::vector<Value> parts;
  size_t begin = 0;
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t found = FindText(text, separator, begin);
    if (found == std::string_view::npos) break;
    RETURN_IF_ERROR(AddPart(state, parts, text.substr(begin, found - begin)));
    begin = found + separator.size();
  }
  RETURN_IF_ERROR(AddPart(state, parts, text.substr(begin)));
  return state.NewList(std::move(parts));
}

// Offset of the last `separator` that ends at or before `end`.
size_t FindLast(std::string_view text, std::string_view separator, size_t end) {
  if (separator.size() > end) return std::string_view::npos;
  return text.substr(0, end).rfind(separator);
}

Result<Value> SplitAtFromRight(State& state, std::string_view text, std::string_view separator,
                               int64_t limit) {
  // rfind compares at every offset: its worst case is the product of both lengths.
  RETURN_IF_ERROR(state.Step(static_cast<int64_t>(text.size() / 64 * separator.size() / 64)));
  std::vector<Value> parts;
  size_t end = text.size();
  while (limit < 0 || static_cast<int64_t>(parts.size()) < limit) {
    const size_t found = FindLast(text, separator, end);
    if (found == std::string_view::npos) break;
    const size_t begin = found + separator.size();
    RETURN_IF_ERROR(AddPart(state, parts, text.substr(begin, end - begin)));
    end = found;
  }
  RETURN_IF_ERROR(AddPart(state, parts, text.substr(0, end)));
  std::reverse(parts.begin(), parts.end());
  return state.NewList(std::move(parts));
}

enum class Direction { kLeft, kRight };

template <Direction direction>
Result<Value> SplitFrom(State& state, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<2>(arguments, {"sep", "maxsplit"}));
  ASSIGN_OR_RETURN(const int64_t limit, IntegerArgument(bound[1], -1, "maxsplit"));
  const bool from_left = direction == Direction::kLeft;
  if (bound[0] == nullptr || bound[0]->is_none()) {
    return from_left ? SplitWords(state, self.string(), limit)
                     : SplitWordsFromRight(state, self.string(), limit);
  }
  ASSIGN_OR_RETURN(const std::string_view separator, TextArgument(bound[0], "", "sep"));
  if (separator.empty()) return Error(ErrorCode::kInvalidArgument, "the separator is empty");
  return from_left ? SplitAt(state, self.string(), separator, limit)
                   : SplitAtFromRight(state, self.string(), separator, limit);
}

// partition() and rpartition().
template <Direction direction>
Result<Value> PartitionFrom(State& state, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<1>(arguments, {"sep"}));
  ASSIGN_OR_RETURN(const Value* sep, RequiredArgument(bound[0], "sep"));
  ASSIGN_OR_RETURN(const std::string_view wanted, TextArgument(sep, "", "sep"));
  if (wanted.empty()) return Error(ErrorCode::kInvalidArgument, "the separator is empty");
  const bool left = direction == Direction::kLeft;
  const std::string_view text = self.string();
  RETURN_IF_ERROR(state.Step(static_cast<int64_t>(text.size() / 64 * (wanted.size() / 64 + 1))));
  const size_t found = left ? FindText(text, wanted) : text.rfind(wanted);
  std::vector<Value> parts;
  if (found == std::string_view::npos) {
    const Value empty = Value::String("");
    return state.NewTuple(left ? std::vector<Value>{self, empty, empty}
                               : std::vector<Value>{empty, empty, self});
  }
  RETURN_IF_ERROR(AddPart(state, parts, text.substr(0, found)));
  RETURN_IF_ERROR(AddPart(state, parts, wanted));
  RETURN_IF_ERROR(AddPart(state, parts, text.substr(found + wanted.size())));
  return state.NewTuple(std::move(parts));
}

}  // namespace

Result<Value> Split(State& state, const Value& self, const Arguments& arguments) {
  return SplitFrom<Direction::kLeft>(state, self, arguments);
}

Result<Value> SplitFromRight(State& state, const Value& self, const Arguments& arguments) {
  return SplitFrom<Direction::kRight>(state, self, arguments);
}

Result<Value> Partition(State& state, const Value& self, const Arguments& arguments) {
  return PartitionFrom<Direction::kLeft>(state, self, arguments);
}

Result<Value> PartitionFromRight(State& state, const Value& self, const Arguments& arguments) {
  return PartitionFrom<Direction::kRight>(state, self, arguments);
}

Result<Value> SplitLines(State& state, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<1>(arguments, {"keepends"}));
  const bool keep_ends = TruthArgument(bound[0], false);
  const std::string_view text = self.string();
  std::vector<Value> lines;
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = CodePointAt(text, i);
    const size_t end = i;
    i += c.length;
    const bool breaks = (c.value >= 0x0A && c.value <= 0x0D) ||
                        (c.value >= 0x1C && c.value <= 0x1E) || c.value == 0x85 ||
                        c.value == 0x2028 || c.value == 0x2029;
    if (!breaks) continue;
    if (c.value == '\r' && i < text.size() && text[i] == '\n') ++i;
    RETURN_IF_ERROR(AddPart(state, lines, text.substr(begin, (keep_ends ? i : end) - begin)));
    begin = i;
  }
  if (begin < text.size()) RETURN_IF_ERROR(AddPart(state, lines, text.substr(begin)));
  return state.NewList(std::move(lines));
}

}  // namespace hayate::text::jinja
