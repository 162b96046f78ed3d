#include "text/template/text_search.h"

#include <cstring>
#include <string>

#include "text/template/code_points.h"

namespace hayate::text::jinja {
namespace {

Result<Value> InsertEverywhere(State& state, std::string_view text, std::string_view inserted,
                               int64_t limit) {
  std::string out;
  int64_t done = 0;
  for (size_t i = 0; i <= text.size();) {
    if (limit < 0 || done < limit) {
      out += inserted;
      ++done;
    }
    RETURN_IF_ERROR(state.Step());
    RETURN_IF_ERROR(state.CheckStringSize(out.size()));
    if (i == text.size()) break;
    const size_t length = CodePointAt(text, i).length;
    out += text.substr(i, length);
    i += length;
  }
  return state.NewString(std::move(out));
}

}  // namespace

size_t FindText(std::string_view haystack, std::string_view needle, size_t from) {
  if (from > haystack.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  const void* found =
      memmem(haystack.data() + from, haystack.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - haystack.data());
}

Result<Value> ReplaceText(State& state, std::string_view text, const Replacement& replacement) {
  if (replacement.from.empty()) {
    return InsertEverywhere(state, text, replacement.to, replacement.limit);
  }
  RETURN_IF_ERROR(state.Step(static_cast<int64_t>(text.size() / 256)));
  std::string out;
  size_t begin = 0;
  for (int64_t done = 0; replacement.limit < 0 || done < replacement.limit; ++done) {
    const size_t found = FindText(text, replacement.from, begin);
    if (found == std::string_view::npos) break;
    out += text.substr(begin, found - begin);
    out += replacement.to;
    begin = found + replacement.from.size();
    RETURN_IF_ERROR(state.Step());
    RETURN_IF_ERROR(state.CheckStringSize(out.size()));
  }
  out += text.substr(begin);
  return state.NewString(std::move(out));
}

}  // namespace hayate::text::jinja
