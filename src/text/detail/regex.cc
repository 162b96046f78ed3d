#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/detail/regex.h"

#include <pcre2.h>

#include <algorithm>

#include "base/error.h"
#include "text/detail/utf8.h"

namespace hayate::text {
namespace {

// Rewrites what the two dialects read differently. \s is Unicode's White_Space in Oniguruma;
// PCRE2's \s under UCP also matches U+180E, which has not been a space since Unicode 6.3. Nested
// classes and their intersection ("[a-z&&[^b]]") do not exist in PCRE2, which would read literal
// characters.
Result<std::string> Translate(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const std::string_view rest = pattern.substr(i);
    if (rest.size() > 1 && rest[0] == '\\') {
      out += rest[1] == 's'   ? "\\p{White_Space}"
             : rest[1] == 'S' ? "\\P{White_Space}"
                              : rest.substr(0, 2);
      ++i;
      continue;
    }
    if (in_class && (rest.starts_with("&&") || (rest[0] == '[' && !rest.starts_with("[:")))) {
      return Error(ErrorCode::kUnsupported,
                   "pattern '{}': nested class or intersection at offset {}", pattern, i);
    }
    if (in_class && rest.starts_with("[:")) {
      const size_t name = std::min(rest.find(":]"), rest.size());
      out += rest.substr(0, name);
      i += name - 1;
      continue;
    }
    if (rest[0] == '[') in_class = true;
    if (rest[0] == ']') in_class = false;
    out += rest[0];
  }
  return out;
}

}  // namespace

RegexScratch::RegexScratch() : data_(pcre2_match_data_create(1, nullptr)) {
  CHECK(data_ != nullptr) << "out of memory";
}

void RegexScratch::Free::operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
void Regex::Free::operator()(pcre2_code* code) const { pcre2_code_free(code); }

Result<Regex> Regex::Compile(std::string_view pattern, int max_steps) {
  ASSIGN_OR_RETURN(std::string translated, Translate(pattern));
  // PCRE2 takes the lower of several limits: a pattern cannot raise its own.
  const std::string limit =
      max_steps > 0 ? fmt::format("(*LIMIT_MATCH={})(*LIMIT_DEPTH={})", max_steps, max_steps) : "";
  translated.insert(0, limit);
  int error = 0;
  size_t offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr);
  if (code == nullptr) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(error, message, sizeof(message));
    return Error(ErrorCode::kInvalidArgument, "pattern '{}', near offset {}: {}", pattern,
                 offset - std::min(offset, limit.size()), reinterpret_cast<const char*>(message));
  }
  // Without JIT (a build of PCRE2 for another machine) matching is slower, not different.
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return Regex(code);
}

std::string Regex::Escape(std::string_view literal) {
  constexpr std::string_view kMeta = R"(\^$.|?*+()[]{}#&-~)";
  std::string pattern;
  for (const char c : literal) {
    if (kMeta.find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

Regex::Match Regex::Find(std::string_view subject, size_t from, const RegexScratch& scratch) const {
  const auto* text = reinterpret_cast<PCRE2_SPTR>(subject.data());
  while (from <= subject.size()) {
    int rc = pcre2_match(code_.get(), text, subject.size(), from, PCRE2_NO_UTF_CHECK, scratch.get(),
                         nullptr);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) {
      rc = pcre2_match(code_.get(), text, subject.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                       scratch.get(), nullptr);
    }
    if (rc == PCRE2_ERROR_NOMATCH) return {Outcome::kNoMatch};
    if (rc < 0) return {Outcome::kTooManySteps};
    const size_t* range = pcre2_get_ovector_pointer(scratch.get());
    if (range[1] > range[0]) return {Outcome::kMatch, range[0], range[1]};
    // An empty match splits nothing: go on behind the next character.
    from = range[1] < subject.size()
               ? range[1] + Utf8Length(static_cast<unsigned char>(subject[range[1]]))
               : subject.size() + 1;
  }
  return {Outcome::kNoMatch};
}

Regex::Match Regex::FindOrWait(std::string_view subject, size_t from, bool at_start,
                               const RegexScratch& scratch) const {
  const auto* text = reinterpret_cast<PCRE2_SPTR>(subject.data());
  const uint32_t options = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY | PCRE2_PARTIAL_SOFT |
                           (at_start ? 0 : static_cast<uint32_t>(PCRE2_NOTBOL));
  const int rc =
      pcre2_match(code_.get(), text, subject.size(), from, options, scratch.get(), nullptr);
  if (rc == PCRE2_ERROR_NOMATCH) return {Outcome::kNoMatch};
  const size_t* range = pcre2_get_ovector_pointer(scratch.get());
  // A pattern may look ahead of its own end (\K and its like): a range is what can be cut.
  if (rc == PCRE2_ERROR_PARTIAL) return {Outcome::kPartial, std::max(range[0], from), range[1]};
  if (rc < 0 || range[0] > range[1]) return {Outcome::kTooManySteps};
  return {Outcome::kMatch, std::max(range[0], from), range[1]};
}

}  // namespace hayate::text
