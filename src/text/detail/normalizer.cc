#include "text/detail/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "base/error.h"
#include "text/detail/utf8.h"

namespace hayate::text {
namespace {

// Characters below U+0300 are in NFC already, and nothing in front of them can compose with them.
bool IsNfcAtAGlance(std::string_view text) {
  constexpr unsigned char kLeadOfU0300 = 0xCC;
  return std::none_of(text.begin(), text.end(),
                      [](char c) { return static_cast<unsigned char>(c) >= kLeadOfU0300; });
}

Status ApplyStep(UnicodeForm form, std::string& text) {
  if (form == UnicodeForm::kNfc && IsNfcAtAGlance(text)) return OkStatus();
  const bool compose = form == UnicodeForm::kNfc || form == UnicodeForm::kNfkc;
  const bool compatibility = form == UnicodeForm::kNfkc || form == UnicodeForm::kNfkd;
  const int options = UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                      (compatibility ? UTF8PROC_COMPAT : 0);
  utf8proc_uint8_t* mapped = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                 static_cast<utf8proc_option_t>(options));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  if (size < 0) {
    return Error(ErrorCode::kInvalidArgument, "Unicode normalisation: {}", utf8proc_errmsg(size));
  }
  text.assign(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
  return OkStatus();
}

Status ApplyStep(const PrependText& step, std::string& text) {
  if (!text.empty()) text.insert(0, step.text);
  return OkStatus();
}

Status ApplyStep(const SubstituteText& step, std::string& text) {
  Substitute(step, text);
  return OkStatus();
}

Status ApplyStep(StripSide side, std::string& text) {
  size_t begin = 0, end = text.size();
  while (side != StripSide::kLeft && end > 0) {
    const size_t last = PreviousCharacter(text, end);
    if (!IsWhiteSpace(CodePointAt(text, last))) break;
    end = last;
  }
  while (side != StripSide::kRight && begin < end && IsWhiteSpace(CodePointAt(text, begin))) {
    begin += Utf8Length(static_cast<unsigned char>(text[begin]));
  }
  text = text.substr(begin, end - begin);
  return OkStatus();
}

Status ApplyStep(const SubstitutePattern&, std::string&) { CHECK(false) << "needs its pattern"; }

Status SubstituteMatches(const Regex& pattern, std::string_view to, std::string& text,
                         const RegexScratch& scratch) {
  std::string out;
  size_t done = 0;
  while (true) {
    const Regex::Match match = pattern.Find(text, done, scratch);
    if (match.outcome == Regex::Outcome::kTooManySteps) {
      return Error(ErrorCode::kInvalidArgument, "the normalizer's pattern backtracks too long");
    }
    if (match.outcome == Regex::Outcome::kNoMatch) break;
    out.append(text, done, match.begin - done).append(to);
    done = match.end;
  }
  if (done == 0) return OkStatus();
  out.append(text, done);
  text = std::move(out);
  return OkStatus();
}

}  // namespace

void Substitute(const SubstituteText& rule, std::string& text) {
  size_t hit = rule.from.empty() ? std::string::npos : text.find(rule.from);
  if (hit == std::string::npos) return;
  std::string out;
  out.reserve(text.size() + text.size() / 2);
  size_t done = 0;
  for (; hit != std::string::npos; hit = text.find(rule.from, done)) {
    out.append(text, done, hit - done).append(rule.to);
    done = hit + rule.from.size();
  }
  out.append(text, done);
  text = std::move(out);
}

Result<Normalizer> Normalizer::Create(const std::vector<NormalizerStep>& steps) {
  Normalizer normalizer;
  for (const NormalizerStep& step : steps) {
    std::optional<Regex> pattern;
    if (const auto* substitution = std::get_if<SubstitutePattern>(&step)) {
      ASSIGN_OR_RETURN(pattern, Regex::Compile(substitution->pattern));
    }
    normalizer.steps_.push_back({step, std::move(pattern)});
  }
  return normalizer;
}

Status Normalizer::Apply(std::string& text, const RegexScratch& scratch) const {
  for (const Step& step : steps_) {
    if (step.pattern) {
      RETURN_IF_ERROR(SubstituteMatches(*step.pattern, std::get<SubstitutePattern>(step.rule).to,
                                        text, scratch));
    } else {
      RETURN_IF_ERROR(
          std::visit([&](const auto& rule) { return ApplyStep(rule, text); }, step.rule));
    }
  }
  return OkStatus();
}

}  // namespace hayate::text
