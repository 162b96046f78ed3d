#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/template/access.h"
#include "text/template/arguments.h"
#include "text/template/code_points.h"
#include "text/template/format.h"
#include "text/template/methods.h"
#include "text/template/split_methods.h"
#include "text/template/text_search.h"

namespace hayate::text::jinja {
namespace {

using CaseMap = std::string (*)(std::string_view text);
template <CaseMap map>
Result<Value> MapCase(State& state, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  return state.NewString(map(self.string()));
}

enum class Side { kLeft, kRight, kBoth };
template <Side side>
Result<Value> Strip(State& state, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<1>(arguments, {"chars"}));
  std::string_view text = self.string();
  const Value* characters = bound[0] != nullptr && bound[0]->is_none() ? nullptr : bound[0];
  ASSIGN_OR_RETURN(const std::string_view set, TextArgument(characters, "", "chars"));
  // The product bounds the work of a long set against a long text.
  RETURN_IF_ERROR(state.Step(static_cast<int64_t>(text.size() / 256 * (1 + set.size()))));
  if (side != Side::kRight) text = characters ? StripLeft(text, set) : StripLeft(text);
  if (side != Side::kLeft) text = characters ? StripRight(text, set) : StripRight(text);
  if (text.size() == self.string().size()) return self;
  return state.NewString(std::string(text));
}

enum class Direction { kLeft, kRight };

// startswith and endswith take one text or a tuple of them.
template <Direction direction>
Result<Value> HasAffix(State& state, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<2>(arguments, {"affix", "start"}));
  ASSIGN_OR_RETURN(const Value* affix, RequiredArgument(bound[0], "affix"));
  std::string_view text = self.string();
  if (bound[1] != nullptr) {
    ASSIGN_OR_RETURN(const Value tail, GetSlice(state, self, bound[1], nullptr, nullptr));
    return HasAffix<direction>(state, tail, {.positional = {*affix}, .keyword = {}});
  }
  const bool is_tuple = affix->is_sequence() && affix->sequence().type == SequenceType::kTuple;
  const std::vector<Value> single = {*affix};
  for (const Value& candidate : is_tuple ? affix->sequence().items : single) {
    RETURN_IF_ERROR(state.Step());
    ASSIGN_OR_RETURN(const std::string_view wanted, TextArgument(&candidate, "", "affix"));
    if (direction == Direction::kLeft ? text.starts_with(wanted) : text.ends_with(wanted)) {
      return Value::Bool(true);
    }
  }
  return Value::Bool(false);
}

Result<Value> Replace(State& state, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<3>(arguments, {"old", "new", "count"}));
  ASSIGN_OR_RETURN(const Value* old_value, RequiredArgument(bound[0], "old"));
  ASSIGN_OR_RETURN(const Value* new_value, RequiredArgument(bound[1], "new"));
  ASSIGN_OR_RETURN(const std::string_view from, TextArgument(old_value, "", "old"));
  ASSIGN_OR_RETURN(const std::string_view to, TextArgument(new_value, "", "new"));
  ASSIGN_OR_RETURN(const int64_t limit, IntegerArgument(bound[2], -1, "count"));
  return ReplaceText(state, self.string(), {from, to, limit});
}

template <Direction direction>
Result<int64_t> Locate(State& state, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<2>(arguments, {"sub", "start"}));
  ASSIGN_OR_RETURN(const Value* sub, RequiredArgument(bound[0], "sub"));
  ASSIGN_OR_RETURN(const std::string_view wanted, TextArgument(sub, "", "sub"));
  ASSIGN_OR_RETURN(int64_t start, IntegerArgument(bound[1], 0, "start"));
  const std::string_view text = self.string();
  const auto length = static_cast<int64_t>(Length(text));
  if (start < 0) start = std::max<int64_t>(0, start + length);
  if (start > length) return int64_t{-1};
  RETURN_IF_ERROR(state.Step(static_cast<int64_t>(text.size() / 64 * (wanted.size() / 64 + 1))));
  const size_t from = ByteOffset(text, static_cast<size_t>(start));
  size_t found = direction == Direction::kLeft ? FindText(text, wanted, from) : text.rfind(wanted);
  if (found == std::string_view::npos || found < from) return int64_t{-1};
  return static_cast<int64_t>(Length(text.substr(0, found)));
}

template <Direction direction>
Result<Value> Find(State& state, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t index, Locate<direction>(state, self, arguments));
  return Value::Int(index);
}

template <Direction direction>
Result<Value> Index(State& state, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t index, Locate<direction>(state, self, arguments));
  if (index < 0) return Error(ErrorCode::kInvalidArgument, "the text is not found");
  return Value::Int(index);
}

Result<Value> Count(State& state, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<1>(arguments, {"sub"}));
  ASSIGN_OR_RETURN(const Value* sub, RequiredArgument(bound[0], "sub"));
  ASSIGN_OR_RETURN(const std::string_view wanted, TextArgument(sub, "", "sub"));
  const std::string_view text = self.string();
  if (wanted.empty()) return Value::Int(static_cast<int64_t>(Length(text)) + 1);
  int64_t count = 0;
  for (size_t i = FindText(text, wanted); i != std::string_view::npos;
       i = FindText(text, wanted, i + wanted.size())) {
    RETURN_IF_ERROR(state.Step());
    ++count;
  }
  return Value::Int(count);
}

Result<Value> Join(State& state, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<1>(arguments, {"iterable"}));
  ASSIGN_OR_RETURN(const Value* iterable, RequiredArgument(bound[0], "iterable"));
  ASSIGN_OR_RETURN(const auto items, Iterate(state, *iterable));
  std::string out;
  for (size_t i = 0; i < items->items.size(); ++i) {
    const Value& item = items->items[i];
    if (!item.is_string()) {
      return Error(ErrorCode::kInvalidArgument, "joins text only; item {} is {}", i,
                   item.type_name());
    }
    RETURN_IF_ERROR(state.Step());
    if (i > 0) out += self.string();
    out += item.string();
    RETURN_IF_ERROR(state.CheckStringSize(out.size()));
  }
  return state.NewString(std::move(out));
}

Result<Value> Format(State& state, const Value& self, const Arguments& arguments) {
  return FormatBraces(state, self.string(), arguments);
}

template <Direction direction>
Result<Value> RemoveAffix(State& state, const Value& self, const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto bound, Bind<1>(arguments, {"affix"}));
  ASSIGN_OR_RETURN(const Value* affix, RequiredArgument(bound[0], "affix"));
  ASSIGN_OR_RETURN(const std::string_view wanted, TextArgument(affix, "", "affix"));
  std::string_view text = self.string();
  if (direction == Direction::kLeft && text.starts_with(wanted)) text.remove_prefix(wanted.size());
  if (direction == Direction::kRight && text.ends_with(wanted)) text.remove_suffix(wanted.size());
  return state.NewString(std::string(text));
}

// isdigit() and its like: true if there is a character and all are of the class.
using Class = bool (*)(char32_t c);
template <Class in_class>
Result<Value> AllAre(State&, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  const std::string_view text = self.string();
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = CodePointAt(text, i);
    if (!in_class(c.value)) return Value::Bool(false);
    i += c.length;
  }
  return Value::Bool(!text.empty());
}

bool IsAlphanumeric(char32_t c) { return IsAlphabetic(c) || IsDigit(c); }

// isupper() and islower(): no letter of the other case, and at least one of this.
template <Class wanted, Class other>
Result<Value> CasedAre(State&, const Value& self, const Arguments& arguments) {
  RETURN_IF_ERROR(Bind<0>(arguments, {}).status());
  const std::string_view text = self.string();
  bool any = false;
  for (size_t i = 0; i < text.size();) {
    const CodePoint c = CodePointAt(text, i);
    if (other(c.value)) return Value::Bool(false);
    any = any || wanted(c.value);
    i += c.length;
  }
  return Value::Bool(any);
}

constexpr std::array<NamedFunction, 33> kTextMethods = {{
    {"capitalize", MapCase<Capitalize>},
    {"casefold", MapCase<Lower>},
    {"count", Count},
    {"endswith", HasAffix<Direction::kRight>},
    {"find", Find<Direction::kLeft>},
    {"format", Format},
    {"index", Index<Direction::kLeft>},
    {"isalnum", AllAre<IsAlphanumeric>},
    {"isalpha", AllAre<IsAlphabetic>},
    {"isdecimal", AllAre<IsDigit>},
    {"isdigit", AllAre<IsDigit>},
    {"islower", CasedAre<IsLower, IsUpper>},
    {"isnumeric", AllAre<IsDigit>},
    {"isspace", AllAre<IsSpace>},
    {"isupper", CasedAre<IsUpper, IsLower>},
    {"join", Join},
    {"lower", MapCase<Lower>},
    {"lstrip", Strip<Side::kLeft>},
    {"partition", Partition},
    {"removeprefix", RemoveAffix<Direction::kLeft>},
    {"removesuffix", RemoveAffix<Direction::kRight>},
    {"replace", Replace},
    {"rfind", Find<Direction::kRight>},
    {"rindex", Index<Direction::kRight>},
    {"rpartition", PartitionFromRight},
    {"rsplit", SplitFromRight},
    {"rstrip", Strip<Side::kRight>},
    {"split", Split},
    {"splitlines", SplitLines},
    {"startswith", HasAffix<Direction::kLeft>},
    {"strip", Strip<Side::kBoth>},
    {"title", MapCase<TitleCase>},
    {"upper", MapCase<Upper>},
}};

}  // namespace

const NamedFunction* FindTextMethod(std::string_view name) {
  const auto it = std::find_if(kTextMethods.begin(), kTextMethods.end(),
                               [name](const NamedFunction& entry) { return entry.name == name; });
  return it == kTextMethods.end() ? nullptr : &*it;
}

}  // namespace hayate::text::jinja
