#pragma once
// Stop strings in a stream of text: passes on what is certain to stand before any stop string,
// holds back a tail that may be the start of one. The result does not depend on how the stream is
// cut.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace hayate::text {

// The stop strings of a request as an Aho–Corasick automaton. Immutable; shared by the matchers of
// a request's choices.
class StopStrings {
 public:
  static constexpr size_t kMaxStrings = 256;
  static constexpr size_t kMaxTotalBytes = 64 * 1024;

  // None of `strings` may be empty. Errors say what the list has.
  static Result<StopStrings> Create(std::vector<std::string> strings);

  const std::vector<std::string>& strings() const { return strings_; }

 private:
  friend class StopMatcher;

  // A node stands for a prefix of some stop string.
  struct Node {
    std::vector<std::pair<char, uint32_t>> children;
    uint32_t fallback = 0;  // node of the longest proper suffix that is a prefix too
    uint32_t depth = 0;     // bytes of the prefix
    int32_t match = -1;     // longest stop string that ends here, or -1
  };

  void Insert(size_t index);
  void Link();
  std::optional<uint32_t> Child(uint32_t node, char byte) const;
  uint32_t Next(uint32_t node, char byte) const;

  std::vector<std::string> strings_;
  std::vector<Node> nodes_{1};
};

// Whether the text that is passed on ends before the stop string or with it.
enum class StopText { kTrimmed, kKept };

// Not thread-safe; one per sequence.
class StopMatcher {
 public:
  struct Output {
    std::string text;               // safe to send
    std::optional<size_t> matched;  // index into strings(): the sequence ends here
  };

  // `stops` outlives the matcher.
  StopMatcher(const StopStrings& stops, StopText stop_text)
      : stops_(stops), stop_text_(stop_text) {}

  // The stop string that is complete first wins; of several that end at the same byte, the longest.
  // After a match every delta gives nothing.
  Output Feed(std::string_view delta);
  // The end of the stream: what is still held back. It is no stop string.
  std::string Flush();

 private:
  const StopStrings& stops_;
  StopText stop_text_;
  uint32_t node_ = 0;
  std::string held_;  // the prefix that node_ stands for
  bool finished_ = false;
};

}  // namespace hayate::text
