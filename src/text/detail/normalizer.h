#pragma once
// Applies a spec's normalizer steps. Immutable; shared by all threads.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "text/detail/regex.h"
#include "text/tokenizer_spec.h"

namespace hayate::text {

class Normalizer {
 public:
  static Result<Normalizer> Create(const std::vector<NormalizerStep>& steps);

  bool empty() const { return steps_.empty(); }
  // Leaves `text` normalised; valid UTF-8 in and out.
  Status Apply(std::string& text, const RegexScratch& scratch) const;

 private:
  struct Step {
    NormalizerStep rule;
    std::optional<Regex> pattern;  // of a SubstitutePattern
  };

  std::vector<Step> steps_;
};

// Replaces every occurrence of `rule.from`, left to right.
void Substitute(const SubstituteText& rule, std::string& text);

}  // namespace hayate::text
