#include "text/stop_regex.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/detail/regex.h"

namespace hayate::text {
namespace {

// A search runs for each token on a thread that serves others too, and starts at every byte that is
// held. An expression that reaches the limit again and again is not looked for any more.
constexpr int kMaxSteps = 1000;
constexpr int kMaxGiveUps = 4;

}  // namespace

StopRegexes::StopRegexes(std::vector<std::string> patterns) : patterns_(std::move(patterns)) {}
StopRegexes::StopRegexes(StopRegexes&&) noexcept = default;
StopRegexes::~StopRegexes() = default;

Result<StopRegexes> StopRegexes::Create(std::vector<std::string> patterns) {
  if (patterns.size() > kMaxPatterns) {
    return Error(ErrorCode::kInvalidArgument, "holds more than {} expressions", kMaxPatterns);
  }
  StopRegexes stops(std::move(patterns));
  for (const std::string& pattern : stops.patterns_) {
    if (pattern.size() > kMaxPatternBytes) {
      return Error(ErrorCode::kInvalidArgument, "an expression has {} bytes, at most {} may be",
                   pattern.size(), kMaxPatternBytes);
    }
    ASSIGN_OR_RETURN(Regex compiled, Regex::Compile(pattern, kMaxSteps));
    stops.compiled_.push_back(std::move(compiled));
  }
  return stops;
}

StopRegexMatcher::StopRegexMatcher(const StopRegexes& stops, StopText stop_text)
    : stops_(stops),
      stop_text_(stop_text),
      scratch_(std::make_unique<RegexScratch>()),
      give_ups_(stops.patterns().size()) {}
StopRegexMatcher::StopRegexMatcher(StopRegexMatcher&&) noexcept = default;
StopRegexMatcher::~StopRegexMatcher() = default;

StopMatcher::Output StopRegexMatcher::Feed(std::string_view delta) {
  StopMatcher::Output output;
  if (finished_ || delta.empty()) return output;
  text_ += delta;
  size_t held_from = text_.size();
  size_t match_begin = text_.size(), match_end = 0;
  for (size_t i = 0; i < stops_.compiled_.size(); ++i) {
    if (give_ups_[i] >= kMaxGiveUps) continue;
    const Regex::Match match = stops_.compiled_[i].FindOrWait(text_, begin_, !cut_, *scratch_);
    give_ups_[i] += match.outcome == Regex::Outcome::kTooManySteps;
    if (match.outcome == Regex::Outcome::kPartial) held_from = std::min(held_from, match.begin);
    if (match.outcome != Regex::Outcome::kMatch || match.begin >= match_begin) continue;
    match_begin = match.begin;
    match_end = match.end;
    output.matched = i;
  }
  if (output.matched) {
    finished_ = true;
    const size_t end = stop_text_ == StopText::kKept ? match_end : match_begin;
    output.text = text_.substr(begin_, end - begin_);
    return output;
  }
  if (text_.size() - held_from > kMaxHeld) held_from = text_.size();
  output.text = text_.substr(begin_, held_from - begin_);
  begin_ = held_from;
  if (begin_ > 2 * kContext) {
    size_t drop = begin_ - kContext;
    while (drop < begin_ && (text_[drop] & 0xC0) == 0x80) ++drop;
    text_.erase(0, drop);
    begin_ -= drop;
    cut_ = true;
  }
  return output;
}

std::string StopRegexMatcher::Flush() {
  finished_ = true;
  return text_.substr(std::exchange(begin_, text_.size()));
}

}  // namespace hayate::text
