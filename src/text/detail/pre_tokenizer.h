#pragma once
// Cuts text into the pieces that BPE sees one by one. Immutable; shared by all threads.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/detail/regex.h"
#include "text/tokenizer_spec.h"

namespace hayate::text {

// Takes the pieces in order. A piece is valid during the call only.
class PieceSink {
 public:
  virtual void Take(std::string_view piece) = 0;

 protected:
  ~PieceSink() = default;
};

class PreTokenizer {
 public:
  static Result<PreTokenizer> Create(const std::vector<PreTokenizerStep>& steps);

  // A stretch of text, and whether it begins where the whole text began.
  struct Stretch {
    std::string_view text;
    bool at_start = false;
  };

  // Never gives empty pieces. Fails when a pattern backtracks too long; the sink may have got some
  // pieces.
  Status Run(Stretch stretch, const RegexScratch& scratch, PieceSink& sink) const;

 private:
  struct Step {
    PreTokenizerStep rule;
    std::optional<Regex> pattern;  // of a SplitText
  };
  struct Pass {
    const RegexScratch& scratch;
    PieceSink& sink;
    bool too_many_steps = false;
  };

  // The steps from `step` on, depth first.
  void RunFrom(size_t step, Stretch stretch, Pass& pass) const;
  void RunSplit(size_t step, Stretch stretch, Pass& pass) const;

  std::vector<Step> steps_;
};

}  // namespace hayate::text
