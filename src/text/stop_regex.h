#pragma once
// Stop expressions in a stream of text, the way of stop_matcher.h: what cannot belong to a match
// any more is passed on, a tail that may yet become one is held back.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/stop_matcher.h"

namespace hayate::text {

class Regex;
class RegexScratch;

// Immutable; shared by the matchers of a request's choices.
class StopRegexes {
 public:
  static constexpr size_t kMaxPatterns = 8;
  static constexpr size_t kMaxPatternBytes = 4096;

  // None of `patterns` may be empty. Errors say which cannot be compiled and where.
  static Result<StopRegexes> Create(std::vector<std::string> patterns);
  StopRegexes(StopRegexes&&) noexcept;
  ~StopRegexes();

  const std::vector<std::string>& patterns() const { return patterns_; }

 private:
  friend class StopRegexMatcher;
  explicit StopRegexes(std::vector<std::string> patterns);

  std::vector<std::string> patterns_;
  std::vector<Regex> compiled_;
};

// Not thread-safe; one per sequence.
class StopRegexMatcher {
 public:
  // More text than this is not held back: a match that long is not found.
  static constexpr size_t kMaxHeld = 512;
  // What expressions may look back at.
  static constexpr size_t kContext = 64;

  // `stops` outlives the matcher.
  StopRegexMatcher(const StopRegexes& stops, StopText stop_text);
  StopRegexMatcher(StopRegexMatcher&&) noexcept;
  ~StopRegexMatcher();

  // `delta` is whole characters. Of several matches the one that begins first counts; after it
  // every delta gives nothing.
  StopMatcher::Output Feed(std::string_view delta);
  // The end of the stream: what is still held back.
  std::string Flush();

 private:
  const StopRegexes& stops_;
  StopText stop_text_;
  std::unique_ptr<RegexScratch> scratch_;
  std::string text_;  // context, then what is held back
  size_t begin_ = 0;  // of what is held back
  bool cut_ = false;  // text_ does not begin where the stream did
  bool finished_ = false;
  std::vector<int> give_ups_;  // by expression: searches that took too many steps
};

}  // namespace hayate::text
